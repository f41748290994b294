"""resolv.conf. Source: xds-identity-dns.md section 8.2."""

from agent.dns.race import Server
from agent.dns.resolv_conf import ResolvConf, parse_resolv_conf, without

POD = """\
search ns1.svc.cluster.local svc.cluster.local cluster.local
nameserver 10.96.0.10
options ndots:5
"""


def test_a_pods_file_is_read() -> None:
    expected = ResolvConf((Server("10.96.0.10"),), "ns1.svc.cluster.local")

    assert parse_resolv_conf(POD) == expected


def test_all_nameservers_count_once_and_what_is_no_address_does_not() -> None:
    text = """\
# nameserver 1.1.1.1
; nameserver 1.1.1.2
nameserver 10.0.0.1
nameserver
nameserver fe80::1%eth0 # the router
nameserver ns.example
nameserver 10.0.0.1
nameserver ::1
"""

    found = parse_resolv_conf(text).servers

    assert [server.host for server in found] == ["10.0.0.1", "fe80::1%eth0", "::1"]
    assert {server.port for server in found} == {53}


def test_the_last_search_or_domain_line_counts() -> None:
    assert parse_resolv_conf("domain a\nsearch b c\n").search == "b"
    assert parse_resolv_conf("search b c\ndomain a\n").search == "a"
    assert parse_resolv_conf("search\n").search == ""


def test_the_agent_itself_is_left_out() -> None:
    """R-21."""
    conf = parse_resolv_conf("nameserver 127.0.0.1\nnameserver 0:0:0:0:0:0:0:1\nnameserver 8.8.8.8")
    others = (Server("8.8.8.8"),)

    assert without(conf, [Server("127.0.0.1"), Server("::1")]).servers == others
    assert without(conf, [Server("127.0.0.1", 15053)]) == conf
