"""Trust bundles: roots from several sources as one PEM text.

Source: xds-identity-dns.md section 5.9.
"""

import re
from collections.abc import Iterable
from typing import Final

from agent.protobuf.wire import LENGTH, fields, text

#: ProxyConfig.ca_certificates_pem. Section 7.1.
CA_CERTIFICATES_PEM: Final = 34
#: Base64 has no hyphen: of a block without an end nothing is taken.
BLOCK: Final = rb"-----BEGIN [^-]*-----[^-]*-----END [^-]*-----"


def merge(*bundles: bytes) -> bytes:
    """Return the union of PEM bundles: each block once, sorted, joined by newlines.

    Texts between blocks are dropped.
    """
    blocks = {block for bundle in bundles for block in re.findall(BLOCK, bundle)}
    return b"\n".join(sorted(blocks))


def join_chain(elements: Iterable[str]) -> bytes:
    """Return the elements of a chain as one text, a newline between those that lack one (R-12)."""
    joined = ""
    for element in elements:
        separator = "" if not joined or joined.endswith("\n") else "\n"
        joined += separator + element
    return joined.encode()


def read_trust_bundle(proxy_config: bytes) -> bytes:
    """Return the roots in a serialised ProxyConfig, joined by newlines; WireError if unreadable."""
    found = [
        text(proxy_config, start, end)
        for number, wire_type, start, end in fields(proxy_config)
        if number == CA_CERTIFICATES_PEM and wire_type == LENGTH
    ]
    return "\n".join(found).encode()
