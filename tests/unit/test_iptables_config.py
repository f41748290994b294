"""Flags, environment and host become one configuration, or a list of problems."""

import pytest

from iptables import config
from iptables.config import DnsCapture, Listeners, Settings, parse_settings
from iptables.errors import ConfigError
from iptables.flags import parse_flags
from iptables.host import Account, HostFacts, Servers
from iptables.lists import Selection
from iptables.netlink import Family, InterfaceAddress
from iptables.options import FLAGS, OWN_FLAGS

RESOLV_CONF = "nameserver 10.96.0.10\nnameserver fd00::10\n"


def facts(
    *addresses: str, account: Account | None = None, resolv_conf: str | None = None
) -> HostFacts:
    found = []
    for text in addresses or ("10.0.0.7",):
        family: Family = 6 if ":" in text else 4
        found.append(InterfaceAddress("eth0", 2, family, text, is_up=True, is_loopback=False))
    return HostFacts(tuple(found), account, resolv_conf, "no such file")


def settings(*argv: str, host: HostFacts | None = None, **environ: str) -> Settings:
    flags = parse_flags(FLAGS, argv, environ=environ)
    return parse_settings(flags, environ, host or facts())


def problems(*argv: str, host: HostFacts | None = None, **environ: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as raised:
        settings(*argv, host=host, **environ)
    return raised.value.problems


def test_nothing_given_is_a_sidecar_that_captures_nothing() -> None:
    found = settings().config

    assert found.listeners == Listeners(15001, 15006, 15008)
    assert found.proxy.uids == found.proxy.gids == ("1337",)
    assert found.inbound.ports.is_empty
    assert found.outbound.ranges.v4 == ()
    assert found.outbound.groups.is_all
    assert found.dns is None


def test_every_flag_but_one_has_its_variable() -> None:
    others: dict[str, tuple[str, ...]] = {"backend": ("AGENT_CAPTURE_BACKEND",)}
    others |= dict.fromkeys(("envoy-port", "plan", "explain", "live", "output"), ())
    for flag in OWN_FLAGS:
        name = flag.name.upper().replace("-", "_")
        assert flag.env[:1] == others.get(flag.name, (name,))


def test_a_backend_is_one_of_three() -> None:
    assert settings("--backend=libiptc").actions.forced_variant == "libiptc"
    assert settings("--backend=nft").actions.native_nftables
    assert not settings("--backend=iptables").actions.native_nftables
    assert settings("--native-nftables").actions.native_nftables
    with pytest.raises(ConfigError, match="--backend='x': expected iptables, libiptc, nft"):
        settings("--backend=x")


@pytest.mark.parametrize(
    ("backend", "other"),
    [
        ("iptables", "--native-nftables"),
        ("libiptc", "--native-nftables"),
        ("libiptc", "--force-iptables-binary=nft"),
        ("nft", "--force-iptables-binary=legacy"),
    ],
)
def test_backends_that_contradict_each_other_are_both_named(backend: str, other: str) -> None:
    for argv, environ in (
        ((f"--backend={backend}", other), {}),
        ((other,), {"AGENT_CAPTURE_BACKEND": backend}),
    ):
        with pytest.raises(ConfigError) as caught:
            settings(*argv, host=None, **environ)

        (problem,) = caught.value.problems
        assert f"--backend={backend}" in problem
        assert other in problem


@pytest.mark.parametrize(
    ("argv", "native"),
    [
        (("--backend=nft", "--native-nftables"), True),
        (("--backend=libiptc", "--force-iptables-binary=legacy"), False),
        (("--backend=iptables", "--force-iptables-binary=nft"), False),
        (("--native-nftables", "--force-iptables-binary=nft"), True),  # as in the reference
    ],
)
def test_backends_that_agree_may_both_be_given(argv: tuple[str, ...], *, native: bool) -> None:
    assert settings(*argv).actions.native_nftables == native


def test_a_flag_beats_the_second_variable_beats_the_first() -> None:
    off = settings(DROP_INVALID="true", INVALID_DROP="false")
    on = settings("--drop-invalid", DROP_INVALID="true", INVALID_DROP="false")

    assert not off.config.drop_invalid
    assert on.config.drop_invalid


def test_actions_are_read() -> None:
    found = settings(
        "-n", "--reconcile", "--force-iptables-binary=nft", DRY_RUN_FILE_PATH="transcript"
    ).actions

    assert found.dry_run
    assert found.reconcile
    assert found.forced_variant == "nft"
    assert found.dry_run_file == "transcript"
    assert not found.cleanup_only


@pytest.mark.parametrize(
    ("argv", "account", "uids", "gids"),
    [
        ((), Account(100, 200), ("100",), ("200",)),
        ((), None, ("1337",), ("1337",)),
        (("-g", "5"), Account(100, 200), ("100",), ("5",)),
        (("-u", "3,4"), None, ("3", "4"), ("3", "4")),
        (("-u", "3", "-g", "1,2"), None, ("3",), ("1", "2")),
        (("-u", "istio-proxy"), None, ("istio-proxy",), ("istio-proxy",)),
    ],
    ids=str,
)
def test_the_proxys_identities(
    argv: tuple[str, ...], account: Account | None, uids: tuple[str, ...], gids: tuple[str, ...]
) -> None:
    """Source: traffic-capture.md section 17.24."""
    flags = parse_flags(FLAGS, argv)

    found = parse_settings(flags, {}, facts(account=account)).config.proxy

    assert (found.uids, found.gids) == (uids, gids)
    assert config.needs_account(flags) == ("-u" not in argv)


@pytest.mark.parametrize(
    ("text", "mode"),
    [("", "REDIRECT"), ("REDIRECT", "REDIRECT"), ("TPROXY", "TPROXY"), ("NONE", "NONE")],
)
def test_the_mode_is_one_of_three(text: str, mode: str) -> None:
    """Source: traffic-capture.md section 17.13."""
    assert settings("-m", text).config.inbound.mode == mode


def test_a_switch_without_a_flag_is_off_unless_set_to_something() -> None:
    names = ("AGENT_CAPTURE_ALL_PROXY_IDENTITIES", "AGENT_CAPTURE_DNS_EXCLUSIONS")
    dns = ("--redirect-dns", "--capture-all-dns")
    unset = settings(*dns)

    assert settings(*dns, host=None, **dict.fromkeys(names, "")) == unset
    assert settings(*dns, host=None, **dict.fromkeys(names, "false")) == unset
    found = settings(*dns, host=None, **dict.fromkeys(names, "1")).config
    assert found.proxy.all_identities
    assert found.dns
    assert found.dns.has_exclusions


def test_unusable_text_is_named_all_at_once() -> None:
    found = problems(
        "-p", "0", "-z", "http", "-m", "tproxy", "-b", "80x", "-c", "eth0 -j ACCEPT", "-k", "-x",
        "-u", "3 4", "-i", "10.0.0.1", "-x", "*", "-q", "70000", "-o", "9:8",
        "--force-iptables-binary", "both", "--redirect-dns", "--capture-all-dns",
        AGENT_CAPTURE_DNS_EXCLUSIONS="on",
        AGENT_CAPTURE_ALL_PROXY_IDENTITIES="yes",
        ISTIO_OUTBOUND_OWNER_GROUPS="a b",
        ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR="::1/128",
    )  # fmt: skip

    named = sorted(line.partition(":")[0].partition(" ")[0].partition("=")[0] for line in found)
    assert named == [
        "--envoy-port",
        "--force-iptables-binary",
        "--inbound-capture-port",
        "--istio-exclude-interfaces",
        "--istio-inbound-interception-mode",
        "--istio-inbound-ports",
        "--istio-local-outbound-ports-exclude",
        "--istio-outbound-ports",
        "--istio-service-cidr",
        "--istio-service-exclude-cidr",
        "--kube-virt-interfaces",
        "--proxy-uid",
        "AGENT_CAPTURE_ALL_PROXY_IDENTITIES",
        "AGENT_CAPTURE_DNS_EXCLUSIONS",
        "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR",
        "ISTIO_OUTBOUND_OWNER_GROUPS",
    ]
    assert all("expected" in line for line in found)


def test_a_list_without_effect_is_not_read() -> None:
    found = settings(
        "-b", "80", "-d", "x", "-t", "y",
        ISTIO_OUTBOUND_OWNER_GROUPS="5", ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE="-z",
    ).config  # fmt: skip

    assert found.inbound.exclude_ports == ()
    assert found.outbound.groups == Selection(items=("5",))
    assert found.outbound.exclude_groups == ()


def test_a_mark_and_a_table_are_numbers_in_tproxy_mode() -> None:
    found = settings("-m", "TPROXY", "-t", "7", "-r", "8").config.inbound

    assert (found.mark, found.route_table) == (7, 8)
    assert len(problems("-m", "TPROXY", "-t", "0x7", "-r", "main")) == 2


@pytest.mark.parametrize("table", ["253", "254", "255"])
def test_a_table_of_the_systems_own_is_refused(table: str) -> None:
    (problem,) = problems("-m", "TPROXY", "-r", table)

    assert problem.startswith(f"--istio-inbound-tproxy-route-table={table}: expected another table")
    assert settings("-r", table)  # has no effect


def test_sixty_four_groups_fit_one_rule() -> None:
    groups = ",".join(map(str, range(64)))

    assert len(settings(ISTIO_OUTBOUND_OWNER_GROUPS=groups).config.outbound.groups.items) == 64
    assert problems(ISTIO_OUTBOUND_OWNER_GROUPS=f"{groups},64") == (
        "ISTIO_OUTBOUND_OWNER_GROUPS: expected at most 64 groups, found 65",
    )


def test_an_empty_group_list_captures_nothing_but_is_none_to_exclude() -> None:
    assert settings(ISTIO_OUTBOUND_OWNER_GROUPS="").config.outbound.groups.is_empty
    assert settings(
        ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE="888,ftp"
    ).config.outbound.exclude_groups == ("888", "ftp")


@pytest.mark.parametrize("text", ["127.0.0.1/8", "127.1.2.3/32", "127.0.0.0/16"])
def test_localhost_may_be_wide_and_keeps_its_text(text: str) -> None:
    found = settings(ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR=text).config

    assert found.outbound.loopback_ipv4 == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1", "expected a CIDR"),
        ("", "expected a CIDR"),
        ("10.0.0.1/32", "expected an IPv4 loopback address"),
        ("127.0.0.1/7", "expected a prefix length in 8..32"),
    ],
)
def test_other_localhosts_are_refused(text: str, expected: str) -> None:
    (problem,) = problems(ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR=text)

    assert expected in problem


@pytest.mark.parametrize(
    ("cidr", "is_loopback"),
    [("127.1.2.3/32", True), ("::1/128", True), ("*", False), ("10.0.0.0/8", False)],
)
def test_a_loopback_block_of_either_family_is_captured_on_purpose(
    cidr: str, *, is_loopback: bool
) -> None:
    assert settings("-i", cidr).config.outbound.has_loopback == is_loopback


def test_a_host_without_an_address_is_a_problem() -> None:
    (problem,) = problems(host=HostFacts(addresses=()))

    assert "no valid local IP address found" in problem


def test_ipv6_that_bypasses_envoy_is_warned_about() -> None:
    """Source: traffic-capture.md section 17.8."""
    host = facts("10.0.0.7", "2001:db8::7")

    (warning,) = settings(host=host).warnings

    assert "2001:db8::7" in warning
    assert "ISTIO_DUAL_STACK" in warning
    assert settings("--dual-stack", host=host).warnings == ()


@pytest.mark.parametrize("arguments", [(), ("--dual-stack",)])
@pytest.mark.parametrize("family", [4, 6])
def test_a_flow_can_be_explained_without_an_address(
    family: Family, arguments: tuple[str, ...]
) -> None:
    flags = parse_flags(FLAGS, arguments)

    found = parse_settings(flags, {}, HostFacts(addresses=()), explained=family)

    assert family in found.config.families.captured


def test_a_flow_is_warned_only_about_its_own_family() -> None:
    host = facts("10.0.0.7", "2001:db8::7")
    flags = parse_flags(FLAGS, [])

    assert parse_settings(flags, {}, host, explained=4).warnings == ()
    assert "2001:db8::7" in parse_settings(flags, {}, host, explained=6).warnings[0]


def test_dual_stack_captures_an_ipv6_flow_whatever_explains_it_has() -> None:
    flags = parse_flags(FLAGS, ["--dual-stack"])

    assert parse_settings(flags, {}, facts("10.0.0.7"), explained=6).config.families.ipv6


def test_an_unusable_variable_is_a_warning() -> None:
    (warning,) = settings(RECONCILE="yes").warnings

    assert warning.startswith("RECONCILE='yes'")


def test_dns_goes_to_the_servers_of_resolv_conf() -> None:
    flags = parse_flags(FLAGS, ["--redirect-dns"])

    found = parse_settings(flags, {}, facts(resolv_conf=RESOLV_CONF)).config

    assert config.needs_resolv_conf(flags)
    assert found.dns == DnsCapture(servers=Servers(("10.96.0.10",), ("fd00::10",)))


def test_all_dns_needs_no_resolv_conf() -> None:
    flags = parse_flags(FLAGS, ["--redirect-dns", "--capture-all-dns"])

    assert not config.needs_resolv_conf(flags)
    assert parse_settings(flags, {}, facts()).config.dns == DnsCapture(is_all=True)


def test_an_unreadable_resolv_conf_is_a_problem() -> None:
    assert problems("--redirect-dns") == ("failed to load /etc/resolv.conf: no such file",)


@pytest.mark.parametrize("text", ["", "nameserver fd00::10\n"])
def test_without_a_server_of_a_captured_family_dns_is_left_alone(text: str) -> None:
    """Source: traffic-capture.md section 17.21."""
    found = settings("--redirect-dns", host=facts(resolv_conf=text))

    assert found.config.dns is None
    assert "no DNS servers provided. DNS capture disabled." in found.warnings[0]


def test_an_ipv6_server_is_enough_where_ipv6_is_captured() -> None:
    host = facts("fd00::7", resolv_conf="nameserver x\nnameserver fd00::10\n")

    found = settings("--redirect-dns", host=host)

    assert found.config.dns == DnsCapture(servers=Servers(v6=("fd00::10",)))
    assert found.warnings == ("/etc/resolv.conf: skipping nameserver 'x', no address",)
