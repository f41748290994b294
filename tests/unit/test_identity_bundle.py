"""Trust bundles and chains. Source: xds-identity-dns.md section 5.9, R-12."""

import pytest

from agent.identity.bundle import join_chain, merge, read_trust_bundle
from agent.protobuf.wire import WireError, message


def block(content: str) -> bytes:
    return f"-----BEGIN CERTIFICATE-----\n{content}\n-----END CERTIFICATE-----".encode()


def test_bundles_are_united_sorted_and_freed_from_the_rest() -> None:
    """T-C10."""
    one = b"# a comment\n" + block("b") + b"\n\n" + block("a") + b"\n"

    assert merge(one, block("c") + block("a")) == block("a") + b"\n" + block("b") + b"\n" + block(
        "c"
    )
    assert merge(one, b"") == merge(one) == merge(merge(one), merge(one))
    assert merge() == merge(b"nothing") == b""


def test_a_block_without_an_end_is_left_out() -> None:
    """However many there are: each byte is looked at once, or this would take days."""
    begun = b"-----BEGIN CERTIFICATE-----\nMAA=\n" * 100_000
    whole = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"

    assert merge(begun + whole) == whole


@pytest.mark.parametrize(
    ("elements", "chain"),
    [([], b""), (["a", "b"], b"a\nb"), (["a\n", "b\n"], b"a\nb\n"), (["", "b"], b"b")],
)
def test_elements_of_a_chain_are_on_lines_of_their_own(elements: list[str], chain: bytes) -> None:
    """T-C9."""
    assert join_chain(elements) == chain


def test_the_bundle_of_a_proxy_configuration_is_read() -> None:
    raw = message((1, "/etc"), (34, "one"), (16, 2), (34, "two"))

    assert read_trust_bundle(raw) == b"one\ntwo"
    assert read_trust_bundle(b"") == b""
    with pytest.raises(WireError):
        read_trust_bundle(b"\x0a")
