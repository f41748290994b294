"""Names and what they mean. Source: xds-identity-dns.md sections 8.3, 8.4 and 11.4."""

from itertools import permutations

import pytest

from agent.dns.names import Entry, Names, Place, ip_version, make_place, read_entry
from agent.protobuf.wire import WireError, message
from tests.fakes.dns_table import (
    KUBERNETES,
    TABLE,
    external,
    kubernetes,
    names,
    serialised,
)


def loaded(table: bytes) -> Names:
    made = names()
    for _ in made.load(table):
        pass
    return made


def found(table: Names, name: str) -> tuple[str, list[str]] | None:
    """Return the stored name and its IPv4 addresses."""
    match = table.find(name)
    return match and (match.name, match.addresses(4))


@pytest.mark.parametrize(
    ("query", "name", "ip"),
    [
        ("www.google.com", "www.google.com", "1.1.1.1"),
        ("www.google.com.ns1.svc.cluster.local", "www.google.com", "1.1.1.1"),
        ("productpage.ns1.svc.cluster.local", "productpage.ns1.svc.cluster.local", "9.9.9.9"),
        ("productpage.ns1.svc", "productpage.ns1.svc", "9.9.9.9"),
        ("productpage.ns1", "productpage.ns1", "9.9.9.9"),
        ("productpage", "productpage", "9.9.9.9"),
        ("productpage.ns1.ns1.svc.cluster.local", "productpage.ns1", "9.9.9.9"),
        ("example.ns2", "example.ns2", "10.10.10.10"),
        ("example.ns2.svc", "example.ns2.svc", "10.10.10.10"),
        ("foo.wildcard", "*.wildcard", "10.10.10.10"),
        ("foo.bar.wildcard", "*.wildcard", "10.10.10.10"),
        ("foo.wildcard.ns1.svc.cluster.local", "*.wildcard", "10.10.10.10"),
        ("*.wildcard", "*.wildcard", "10.10.10.10"),
    ],
)
def test_a_name_of_the_table_is_found(query: str, name: str, ip: str) -> None:
    """T-D1 to T-D8, T-D12, T-D13, N5d."""
    assert found(names(*TABLE), query) == (name, [ip])


@pytest.mark.parametrize(
    "query",
    [
        "www.bing.com",
        "productpage.ns1.svc.cluster.local.ns1.svc.cluster.local",
        "productpage.ns1.svc.cluster",
        "productpage.svc.cluster.local",
        "example",
        "wildcard",
        "details.ns2",
        "details",
        "details.ns2.svc.cluster",
        "ns1.svc.cluster.local",
        "ns1.svc.cluster.local.ns1.svc.cluster.local",
        "",
        "www\\.google.com",
        "foo\\.wildcard",
    ],
)
def test_a_name_that_is_not_in_the_table_is_for_others(query: str) -> None:
    """T-D5, R-20."""
    assert names(*TABLE).find(query) is None


def test_only_the_first_search_domain_is_expanded() -> None:
    table = names(*TABLE, search="first.example")

    assert found(table, "www.google.com.first.example") == ("www.google.com", ["1.1.1.1"])
    assert table.find("www.google.com.svc.cluster.local") is None


def test_without_a_search_domain_nothing_is_expanded() -> None:
    table = names(*TABLE, search="")

    assert table.find("www.google.com.ns1.svc.cluster.local") is None
    assert found(table, "productpage") == ("productpage", ["9.9.9.9"])


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (TABLE[1], {"productpage.ns1", "productpage.ns1.svc", "productpage"}),
        (TABLE[2], {"example.ns2", "example.ns2.svc"}),
        (TABLE[4], set()),
        (TABLE[0], set()),
        (
            TABLE[3]._replace(alt_hosts=("Alt.example.",)),
            {"svc-with-alt.ns1", "svc-with-alt.ns1.svc", "svc-with-alt", "alt.example"},
        ),
    ],
)
def test_alternate_names_are_those_of_the_specification(entry: Entry, expected: set[str]) -> None:
    """T-D18."""
    table = names(entry)

    assert set(table.alternate_names(entry)) == expected
    assert all(found(table, name) == (name, list(entry.ips)) for name in expected)


def test_names_of_a_host_unlike_its_fields_are_stored() -> None:
    odd = Entry("odd.svc.cluster.local", ("1.2.3.4",), KUBERNETES, "Short", "ns1")
    table = names(odd)

    for name in ("short.ns1", "short.ns1.svc", "short", "odd.svc.cluster.local"):
        assert found(table, name) == (name, ["1.2.3.4"])


def test_only_kubernetes_hosts_have_short_names() -> None:
    table = names(external("web.ns1.svc.cluster.local", "1.1.1.1"))

    assert table.find("web.ns1") is None
    assert table.find("web.ns1.svc.cluster.local") is not None


def test_pods_of_a_stateful_set_have_dotted_short_names() -> None:
    table = names(kubernetes("mysql-0.mysql", "ns1", "1.2.3.4"))

    assert found(table, "mysql-0.mysql") == ("mysql-0.mysql", ["1.2.3.4"])
    assert found(table, "mysql-0.mysql.ns1.svc") == ("mysql-0.mysql.ns1.svc", ["1.2.3.4"])


def test_the_domain_may_be_any() -> None:
    table = names(Entry("web.ns1.mesh", ("1.1.1.1",), KUBERNETES, "web", "ns1"), domain="ns1.mesh")

    assert found(table, "web") == ("web", ["1.1.1.1"])
    assert table.find("web.ns1") is not None
    assert make_place("ns1", "other.mesh") == Place("ns1", "other.mesh")


def test_without_a_domain_there_are_no_short_names() -> None:
    table = names(TABLE[1], domain="")

    assert table.find("productpage") is None
    assert table.find("productpage.ns1.svc.cluster.local") is not None


def test_in_no_namespace_there_is_no_name_without_one() -> None:
    table = Names(make_place("", "svc.cluster.local"), "")
    table.add(kubernetes("web", "", "1.1.1.1"))

    assert table.find("web") is None


def test_a_host_is_not_hidden_by_the_alias_of_another() -> None:
    """D-13: ServiceEntry `foo` and service `foo.ns1`."""
    table = names(external("foo", "1.1.1.1"), kubernetes("foo", "ns1", "2.2.2.2"))

    assert found(table, "foo.ns1.svc.cluster.local") == (
        "foo.ns1.svc.cluster.local",
        ["2.2.2.2"],
    )
    assert found(table, "foo") == ("foo", ["1.1.1.1"])


def test_a_short_name_is_not_hidden_by_the_alias_of_another() -> None:
    table = names(kubernetes("a", "b", "1.1.1.1"), external("a", "2.2.2.2"), search="b")

    assert found(table, "a.b") == ("a.b", ["1.1.1.1"])


def test_of_equal_short_names_the_own_namespace_has_the_first() -> None:
    near, far = kubernetes("a.b", "ns1", "1.1.1.1"), kubernetes("a", "b", "2.2.2.2")

    for order in permutations((near, far)):
        assert found(names(*order), "a.b") == ("a.b", ["1.1.1.1"])


def test_of_equal_alternate_hosts_the_first_in_the_alphabet_counts() -> None:
    """D-13."""
    entries = [
        kubernetes(short, "ns1", ip)._replace(alt_hosts=("shared",))
        for short, ip in (("b", "2.2.2.2"), ("a", "1.1.1.1"), ("c", "3.3.3.3"))
    ]

    for order in permutations(entries):
        assert found(names(*order), "shared") == ("shared", ["1.1.1.1"])


def test_services_of_one_host_are_merged() -> None:
    entries = [external("Foo.com", "1.1.1.1"), external("foo.com.", "2.2.2.2", "1.1.1.1")]

    for order in permutations(entries):
        assert found(names(*order), "foo.com") == ("foo.com", ["1.1.1.1", "2.2.2.2"])


def test_the_most_specific_wildcard_counts() -> None:
    table = names(external("*.b.c", "1.1.1.1"), external("*.c", "2.2.2.2"))

    assert found(table, "a.b.c") == ("*.b.c", ["1.1.1.1"])
    assert found(table, "a.x.c") == ("*.c", ["2.2.2.2"])
    assert found(table, "b.c") == ("*.c", ["2.2.2.2"])


@pytest.mark.parametrize("host", ["*", "*.", "", "."])
def test_a_bare_wildcard_never_matches(host: str) -> None:
    table = names(external(host, "1.1.1.1"), external("*.c", "2.2.2.2"))

    assert table.find("a") is None
    assert table.find(host.removesuffix(".")) is None
    assert table.find("a.ns1.svc.cluster.local") is None


def test_a_bare_wildcard_is_no_alternate_host_either() -> None:
    table = names(TABLE[1]._replace(alt_hosts=("*", "", ".", "other")))

    assert table.find("*") is None
    assert table.find("x.ns1.svc.cluster.local") is None
    assert found(table, "other") == ("other", ["9.9.9.9"])


def test_an_alternate_host_may_be_a_wildcard() -> None:
    table = names(TABLE[1]._replace(alt_hosts=("*.other",)))

    assert found(table, "x.other") == ("*.other", ["9.9.9.9"])


def test_a_kubernetes_host_with_a_final_dot_is_unreachable() -> None:
    table = names(TABLE[1]._replace(host=TABLE[1].host + "."))

    assert table.find("productpage.ns1.svc.cluster.local") is None
    assert table.find("productpage") is None


def test_entries_without_an_address_are_skipped() -> None:
    table = names(external("a", "nonsense", "fe80::1%eth0", ""), external("b"))

    assert table.find("a") is None
    assert table.find("b") is None
    assert len(table) == 0


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.2.3.4", 4),
        ("2001:db8::1", 6),
        ("::ffff:1.2.3.4", 6),
        ("fe80::1%eth0", None),
        ("1.2.3", None),
        ("1.2.3.04", None),
        ("::g", None),
        ("", None),
    ],
)
def test_an_address_has_the_version_it_is_written_in(text: str, version: int | None) -> None:
    assert ip_version(text) == version


def test_a_serialised_table_is_read() -> None:
    entries = [*TABLE, TABLE[3]._replace(host="x.ns1.svc.cluster.local", alt_hosts=("y", "z"))]
    unknown = message((9, "new"), (10, 7))

    table = loaded(serialised(entries) + unknown)

    assert len(table) == len(entries)
    assert {entry for entry in entries if (match := table.find(entry.host)) is None
            or match.entries != (entry,)} == set()  # fmt: skip


def test_fields_of_an_entry_may_be_unknown_or_missing() -> None:
    shared: dict[str, str] = {}

    assert read_entry(b"", shared) == Entry("", ())
    assert read_entry(
        message((1, "a"), (3, "?"), (2, message((1, "1.1.1.1"), (7, 1)))), shared
    ) == (Entry("a", ("1.1.1.1",)))


@pytest.mark.parametrize("table", [b"\x0a\x05abc", message((1, message((1, b"\xff"))))])
def test_what_is_no_table_is_refused(table: bytes) -> None:
    with pytest.raises(WireError):
        loaded(table)


def test_a_large_table_is_read_in_many_steps() -> None:
    table = serialised(external(f"host-{number}", "1.1.1.1") for number in range(1000))

    assert sum(1 for _ in names().load(table)) > 10


def test_the_document_shows_the_table_and_all_it_answers_for() -> None:
    """N9d. Source: status-lifecycle.md section 3.8."""
    alternate = TABLE[3]._replace(alt_hosts=("Alt.example",))
    table = names(
        external("Dual.localhost", "2001:db8::1", "2.2.2.2"),
        alternate,
        external("nowhere", "?"),
        external("foo", "1.1.1.1"),
        external("foo.", "2.2.2.2"),
    )

    derived = {"ips": ["15.15.15.15"], "registry": "Kubernetes"}
    assert table.document() == {
        "table": {
            "nowhere": {"ips": ["?"], "registry": "External"},
            "Dual.localhost": {"ips": ["2001:db8::1", "2.2.2.2"], "registry": "External"},
            "dual.localhost.": {"ips": ["2.2.2.2", "2001:db8::1"], "registry": "Kubernetes"},
            "foo": {"ips": ["1.1.1.1"], "registry": "External"},
            "foo.": {"ips": ["2.2.2.2"], "registry": "External"},
            "svc-with-alt.ns1.svc.cluster.local": {
                "ips": ["15.15.15.15"],
                "registry": "Kubernetes",
                "shortname": "svc-with-alt",
                "namespace": "ns1",
                "altHosts": ["Alt.example"],
            },
            "svc-with-alt.ns1.svc.cluster.local.": derived,
            "svc-with-alt.ns1.": derived,
            "svc-with-alt.ns1.svc.": derived,
            "svc-with-alt.": derived,
            "alt.example.": derived,
        }
    }
