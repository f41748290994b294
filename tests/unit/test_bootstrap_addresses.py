import pytest

from bootstrap.addresses import (
    IPV4,
    IPV6,
    Network,
    canonical_ip,
    check_address,
    ip_mode,
    ip_version,
    is_reachable,
    is_ready,
    join_host_port,
    network,
    split_host_port,
)

DUAL_IPV4_FIRST = Network("127.0.0.1", "0.0.0.0", "ALL", "::1", "::")
DUAL_IPV6_FIRST = Network("::1", "::", "ALL", "127.0.0.1", "0.0.0.0")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("10.0.0.1", 4),
        ("255.255.255.255", 4),
        ("0.0.0.0", 4),
        ("256.0.0.1", 0),
        ("10.0.0.01", 0),
        ("10.0.0", 0),
        ("10.0.0.1.2", 0),
        ("10.0.0.", 0),
        ("10.0.0.1000", 0),
        ("10.0.0.٣", 0),
        ("", 0),
        ("::1", 6),
        ("fd00::1", 6),
        ("fd00:::1", 0),
        ("istiod:15012", 0),
    ],
)
def test_addresses_are_told_from_other_text(text: str, version: int) -> None:
    assert ip_version(text) == version


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("FD00:0:0::1", "fd00::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("nonsense", ""),
        ("fd00::xyz", ""),
    ],
)
def test_addresses_have_one_text_form(text: str, canonical: str) -> None:
    assert canonical_ip(text) == canonical


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "169.254.1.1", "224.0.0.1", "::1", "fe80::1", "ff02::1"]
)
def test_loopback_and_link_local_addresses_reach_nobody(address: str) -> None:
    assert not is_reachable(address)


@pytest.mark.parametrize("address", ["10.0.0.1", "8.8.8.8", "224.0.1.1", "fd00::1", "ff05::1"])
def test_other_addresses_are_reachable(address: str) -> None:
    assert is_reachable(address)


def test_a_placeholder_is_not_ready() -> None:
    assert [is_ready(text) for text in ("0.0.0.0", "::", "10.0.0.1")] == [False, False, True]


@pytest.mark.parametrize(
    ("addresses", "mode"),
    [
        ([], "ipv4"),
        (["nonsense"], "ipv4"),
        (["10.0.0.1", "x"], "ipv4"),
        (["fd00::1"], "ipv6"),
        (["10.0.0.1", "fd00::1"], "dual"),
    ],
)
def test_addresses_have_a_mode(addresses: list[str], mode: str) -> None:
    assert ip_mode(addresses) == mode


@pytest.mark.parametrize(
    ("addresses", "dual_stack", "expected"),
    [
        (["10.0.0.1"], True, IPV4),
        (["fd00::1"], False, IPV6),
        (["fd00::1", "10.0.0.1"], False, IPV4),
        (["10.0.0.1", "fd00::1"], True, DUAL_IPV4_FIRST),
        (["nonsense", "fd00::1", "10.0.0.1"], True, DUAL_IPV6_FIRST),
    ],
)
def test_the_pod_listens_on_its_families(
    addresses: list[str], *, dual_stack: bool, expected: Network
) -> None:
    assert network(addresses, dual_stack=dual_stack) == expected


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        ("istiod.istio-system.svc:15012", ("istiod.istio-system.svc", 15012)),
        (":65535", ("", 65535)),
    ],
)
def test_host_and_port_are_parted(text: str, pair: tuple[str, int]) -> None:
    assert split_host_port(text) == pair


@pytest.mark.parametrize(
    "text",
    ["", "host", "80", "host:", "host:0", "host:65536", "host:123456", "host:٣", "::1:80", "[::1]",
     "[a:80", "a]:80", "a:b:80"],
)  # fmt: skip
def test_other_text_is_no_host_and_port(text: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        split_host_port(text)


@pytest.mark.parametrize(
    "text", ["istiod:1", "a-b.c.:1", "10.0.0.1:1", "[fd00::1]:1", "x1:1", "UPPER.case:1"]
)
def test_names_and_addresses_are_hosts(text: str) -> None:
    check_address(text)


@pytest.mark.parametrize(
    "text",
    [":1", "a..b:1", "-a:1", "a-:1", "a_b:1", "1.2.3:1", "10.0.0.256:1", "$(HOST_IP):1",
     "a" * 64 + ":1", ".".join(["a" * 60] * 5) + ":1"],
)  # fmt: skip
def test_other_text_is_no_host(text: str) -> None:
    with pytest.raises(ValueError, match="a DNS name or an IP address before the port"):
        check_address(text)


def test_joining_brackets_what_needs_it() -> None:
    assert join_host_port("fd00::1", 80) == "[fd00::1]:80"
    assert join_host_port("10.0.0.1", 80) == "10.0.0.1:80"
