"""What connections to the control plane and to the CA have in common."""

import pytest

from agent.channel.policies import POLICIES
from agent.credentials.settings import (
    COMPLIANCE_POLICIES,
    TokenSettings,
    is_loopback,
    parse_headers,
    parse_policy,
    parse_proxy,
    parse_token,
)
from agent.reader import Reader


def test_headers_come_from_variables_with_a_prefix() -> None:
    """A value may begin with '='; other variables are no headers."""
    read = Reader({"CA_HEADER_B": "=x=", "CA_HEADER_A": "1", "XDS_HEADER_C": "2"})

    assert parse_headers(read, "CA_HEADER_") == [("a", "1"), ("b", "=x=")]
    assert read.warnings == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("A B", "x", "no header can be named 'a b'"),
        ("GRPC-X", "x", "no header can be named 'grpc-x'"),
        ("X-BIN", "x", "no header can be named 'x-bin'"),
        ("X", "a\nb", "expected printable ASCII"),
    ],
)
def test_what_http2_forbids_is_left_out(name: str, value: str, said: str) -> None:
    read = Reader({f"CA_HEADER_{name}": value})

    assert parse_headers(read, "CA_HEADER_") == []
    assert said in read.warnings[0]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.1.2.3", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("x", False)],
)
def test_loopback_is_known_by_name_and_address(
    host: str,
    expected: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("environ", [{}, {"CREDENTIAL_FETCHER_TYPE": ""}, {"TRUST_DOMAIN": "x"}])
def test_the_token_is_in_a_file(environ: dict[str, str]) -> None:
    assert parse_token(Reader(environ), metadata_host="169.254.169.254") == TokenSettings()


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("169.254.169.254", ("169.254.169.254", 80)),
        ("localhost:8080", ("localhost", 8080)),
        ("[::1]:8080", ("::1", 8080)),
    ],
)
def test_or_it_is_asked_for(host: str, address: tuple[str, int]) -> None:
    read = Reader({"CREDENTIAL_FETCHER_TYPE": "GoogleComputeEngine", "TRUST_DOMAIN": "td"})

    settings = parse_token(read, metadata_host=host)

    assert (settings.metadata_host, settings.metadata_port) == address
    assert settings.audience == "td"
    assert read.errors == []


@pytest.mark.parametrize("source", ["Mock", "jwt", "GoogleCloud"])
def test_there_is_no_other_source_of_tokens(source: str) -> None:
    read = Reader({"CREDENTIAL_FETCHER_TYPE": source})

    parse_token(read, metadata_host="169.254.169.254")

    assert read.errors == [
        f"CREDENTIAL_FETCHER_TYPE='{source}': expected 'JWT', a file, or 'GoogleComputeEngine'"
    ]


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ({"HTTPS_PROXY": "HTTPS://u:p@proxy:3128"}, "http://u:p@proxy:3128"),
        ({"https_proxy": "proxy:3128"}, "http://proxy:3128"),
        ({"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".svc,istiod.example"}, ""),
        ({"HTTP_PROXY": "http://proxy:3128", "http_proxy": "http://proxy:3128"}, ""),
    ],
)
def test_a_proxy_is_chosen_as_go_chooses_it(environ: dict[str, str], proxy: str) -> None:
    read = Reader(environ)

    assert parse_proxy(read, "istiod.example:15012") == proxy
    assert (read.errors, read.warnings) == ([], [])


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [
        ("http://user:secret@", "expected the URL of a proxy"),
        ("socks5://user:secret@proxy:1080", "gRPC knows no socks5 proxy, expected http://…"),
    ],
)
def test_a_proxy_that_is_none_is_one_warning_without_its_password(proxy: str, reason: str) -> None:
    read = Reader({"HTTPS_PROXY": proxy})

    assert parse_proxy(read, "istiod.example:15012") == ""
    assert parse_proxy(read, "other.example:15012") == ""
    assert read.warnings == [f"HTTPS_PROXY: {reason}; ignored"]


@pytest.mark.parametrize("name", ["", *POLICIES])
def test_a_policy_is_one_that_is_known(name: str) -> None:
    assert parse_policy(name) == name


def test_a_policy_that_is_not_known_says_which_are() -> None:
    with pytest.raises(ValueError, match="expected one of fips-140-2, fips-140-3, pqc"):
        parse_policy("weak")


def test_every_policy_that_is_known_is_one_of_tls() -> None:
    assert list(COMPLIANCE_POLICIES) == list(POLICIES)
