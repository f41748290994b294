"""Items of comma lists: what works with the tools passes, what could smuggle in options fails."""

import pytest

from iptables import lists
from iptables.lists import ListReader, Ranges, Selection


@pytest.mark.parametrize(
    ("item", "expected"),
    [("80", "80"), ("0", "0"), ("65535", "65535"), ("8000:9000", "8000:9000"),
     ("8000-9000", "8000:9000"), ("5:5", "5:5")],
)  # fmt: skip
def test_ports_are_numbers_or_ranges(item: str, expected: str) -> None:
    assert lists.ports(item) == expected


@pytest.mark.parametrize(
    "item",
    ["", "http", "65536", "-1", "080", "9000:8000", "1:2:3", "80 -j ACCEPT", "*", "1,2", "٣"],
)
def test_other_ports_are_refused(item: str) -> None:
    with pytest.raises(ValueError, match="expected a port"):
        lists.ports(item)


@pytest.mark.parametrize(
    "item", ["eth0", "bond0.100", "br-docker0", "docker+", "+", "0eth", "_eth0", "veth@if1", "é"]
)
def test_interfaces_are_whatever_works_as_one(item: str) -> None:
    assert lists.interface(item) == item


@pytest.mark.parametrize(
    "item",
    [
        "",
        "-i",
        "eth0 -j ACCEPT",
        "eth0\n-A",
        "eth0/1",
        "eth0:1",
        "!",
        "*",
        'e"',
        "e'",
        "e\\",
        "e\0",
    ],
)
def test_what_is_no_interface_is_refused(item: str) -> None:
    with pytest.raises(ValueError, match="expected an interface"):
        lists.interface(item)


def test_an_interface_name_has_the_kernels_length() -> None:
    assert lists.interface("a" * 15)
    with pytest.raises(ValueError, match="at most 15 characters"):
        lists.interface("a" * 16)


@pytest.mark.parametrize("item", ["0", "1337", "1000-2000", "istio-proxy", "www.data", "host$"])
def test_owners_are_names_numbers_or_ranges(item: str) -> None:
    assert lists.owner(item) == item


@pytest.mark.parametrize("item", ["", "-1", "007", "3 4", "a b", "1-", "!x", "x;y"])
def test_other_owners_are_refused(item: str) -> None:
    with pytest.raises(ValueError, match="expected a name"):
        lists.owner(item)


@pytest.mark.parametrize("item", ["4294967295", "9999999999", "0-4294967295", "2000-1000"])
def test_numbers_that_no_owner_has_are_refused(item: str) -> None:
    assert lists.owner("0-4294967294") == "0-4294967294"
    with pytest.raises(ValueError, match="expected numbers up to 4294967294, the smaller one fi"):
        lists.owner(item)


@pytest.mark.parametrize(
    ("item", "expected"),
    [("10.1.2.3/8", "10.1.2.3/8"), ("0.0.0.0/0", "0.0.0.0/0"), ("2001:DB8::0/32", "2001:db8::/32"),
     ("::1/128", "::1/128")],
)  # fmt: skip
def test_cidrs_keep_their_host_bits(item: str, expected: str) -> None:
    assert lists.cidr(item) == expected


@pytest.mark.parametrize(
    "item",
    ["", "10.0.0.1", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/08", "10.0.0.0/255.0.0.0", "::/129",
     "fe80::1%eth0/64", "*", "example.com/24", "10.0.0.0/8 -j ACCEPT", "10.0.0.0/-1"],
)  # fmt: skip
def test_other_cidrs_are_refused(item: str) -> None:
    with pytest.raises(ValueError, match="expected a CIDR"):
        lists.cidr(item)


def test_items_are_trimmed_and_empty_ones_dropped() -> None:
    reader = ListReader()

    assert reader.items("--x", " 80, 90,,  ,", lists.ports) == ("80", "90")
    assert reader.items("--x", "", lists.ports) == ()
    assert reader.problems == []


def test_every_bad_item_is_named() -> None:
    reader = ListReader()

    assert reader.items("--x", "80x,81,82x", lists.ports) == ("81",)
    assert [line.partition(":")[0] for line in reader.problems] == [
        "--x item '80x'",
        "--x item '82x'",
    ]


def test_a_star_is_everything_only_as_the_whole_value() -> None:
    reader = ListReader()

    assert reader.selection("--x", "*", lists.ports) == Selection(is_all=True)
    assert reader.selection("--x", "1,2", lists.ports) == Selection(items=("1", "2"))
    assert reader.selection("--x", "", lists.ports).is_empty
    assert reader.problems == []
    assert not reader.selection("--x", "1,*", lists.ports).is_all
    assert len(reader.problems) == 1


def test_ranges_are_parted_by_family() -> None:
    reader = ListReader()

    found = reader.ranges("--x", "10.0.0.0/8,::1/128,11.0.0.0/8", may_be_all=True)

    assert found.of(4) == ("10.0.0.0/8", "11.0.0.0/8")
    assert found.of(6) == ("::1/128",)
    assert reader.ranges("--x", "*", may_be_all=True) == Ranges(is_all=True)


def test_excluding_every_range_is_refused() -> None:
    reader = ListReader()

    assert reader.ranges("--x", "*", may_be_all=False) == Ranges()
    assert reader.problems == ["--x item '*': expected a CIDR such as 10.0.0.0/8 or 2001:db8::/32"]


@pytest.mark.parametrize("text", ["", "0", "-1", "65536", "08", "80x", "1:2", "99999999999"])
def test_a_number_has_bounds(text: str) -> None:
    reader = ListReader()

    assert reader.number("--p", text, largest=65535) == 1
    assert reader.problems == [f"--p={text!r}: expected a number in 1..65535"]
    assert reader.number("--p", " 8080 ", largest=65535) == 8080
