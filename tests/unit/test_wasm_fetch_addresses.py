"""Where nothing is fetched from. Section 3.7, T-W11, T-W13."""

import pytest

from agent.wasm.fetch.addresses import Blocked, is_local_registry, realm_problem


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "fe80::1",
        "fe80::1%eth0",
        "100.100.100.200",
        "fd00:ec2::230",
        "224.0.0.251",
        "ff02::1",
        "ff12::1",
        "64:ff9b::a9fe:a9fe",
    ],
)
def test_the_neighbourhood_is_never_fetched_from(address: str) -> None:
    problem = Blocked().problem(address)

    assert problem
    assert problem.startswith(f"address {address} is in ")


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "8.8.8.8", "127.0.0.1", "::1", "2001:db8::1", "100.100.100.201"]
)
def test_other_addresses_are(address: str) -> None:
    assert Blocked().problem(address) is None


def test_networks_are_added_by_settings() -> None:
    blocked = Blocked(("10.0.0.0/8", "127.0.0.0/8", "::1/128"))

    assert blocked.problem("10.0.0.1")
    assert blocked.problem("::ffff:10.0.0.1")
    assert blocked.problem("64:ff9b::a00:1")
    assert blocked.problem("0.0.0.0")
    assert blocked.problem("::")
    assert blocked.problem("::1")
    assert blocked.problem("8.8.8.8") is None


@pytest.mark.parametrize(
    "realm",
    ["https://auth.example.com/token", "http://8.8.8.8:80/token", "https://localhost.example.com/"],
)
def test_public_realms_are_asked(realm: str) -> None:
    assert realm_problem(realm) is None


@pytest.mark.parametrize(
    ("realm", "problem"),
    [
        ("http://169.254.169.254/latest", "169.254.169.254 is not asked"),
        ("http://localhost:80/token", "localhost is not asked"),
        ("http://LOCALHOST./token", "localhost is not asked"),
        ("http://\uff4c\uff4f\uff43\uff41\uff4c\uff48\uff4f\uff53\uff54/", "a host in ASCII"),
        ("http://127\u30020\u30020\u30021/token", "a host in ASCII"),
        ("http://[64:ff9b::7f00:1]/token", "is not asked"),
        ("http://[::]/token", "is not asked"),
        ("file:///etc/passwd", "expected http or https"),
        ("https://10.0.0.1/token", "10.0.0.1 is not asked"),
        ("https://[::1]/token", "::1 is not asked"),
        ("https://[::ffff:10.0.0.1]/token", "is not asked"),
        ("https://[fe80::1%25eth0]/token", "is not asked"),
        ("http://metadata.google.internal/", "is not asked"),
        ("http://0.0.0.0/", "is not asked"),
        ("http://2130706433/", "is not asked"),
        ("http://127.1/", "is not asked"),
        ("http://0x7f.0.0.0x1/", "is not asked"),
        ("https:///token", "has no host"),
        ("token", "expected http or https"),
        ("https://[::1/token", "expected a URL"),
        ("", "expected http or https"),
    ],
)
def test_realms_nearby_are_not(realm: str, problem: str) -> None:
    found = realm_problem(realm)

    assert found
    assert problem in found


@pytest.mark.parametrize(
    ("registry", "expected"),
    [
        ("localhost:5000", True),
        ("localhost", False),
        ("registry.localhost", True),
        ("registry.localhost:5000", True),
        ("127.0.0.1", True),
        ("127.0.0.1:5000", True),
        ("127.0.0.2", False),
        ("[::1]:5000", True),
        ("10.1.2.3:5000", True),
        ("192.168.0.1", True),
        ("172.16.0.1", True),
        ("8.8.8.8", False),
        ("ghcr.io", False),
        ("[::1", False),
    ],
)
def test_registries_that_may_be_without_tls(registry: str, *, expected: bool) -> None:
    assert is_local_registry(registry) is expected
