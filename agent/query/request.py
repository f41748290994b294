"""What is asked of a control plane: a type, names, and for whom.

Source: xds-identity-dns.md sections 2.17, 10.3 and 10.4.
"""

from collections.abc import Sequence
from typing import Final

from envoy.config.core.v3 import base_pb2
from google.protobuf import json_format

from agent.protobuf.wire import message
from agent.xds.discovery import REQUEST, Kind
from agent.xds.resources import ABBREVIATIONS
from bootstrap.node import Node

TYPE_URLS: Final = {short: type_url for type_url, short in ABBREVIATIONS.items()}
#: Whoever names it is registered as a workload, and is gone when its stream ends.
REGISTRATION: Final = "AUTO_REGISTER_GROUP"


def parse_type(text: str) -> str:
    """Return the type URL of a short name or of itself.

    Raises:
        ValueError: it is neither; says what is accepted.
    """
    if "/" in text:
        return text
    try:
        return TYPE_URLS[text.lower()]
    except KeyError:
        known = ", ".join(sorted(TYPE_URLS))
        raise ValueError(
            f"type {text!r}: expected one of {known}, or a type URL as type.googleapis.com/…"
        ) from None


def write_node(node: Node) -> bytes:
    """Return a node as Envoy sends it, but for what would register it as a workload."""
    metadata = {key: value for key, value in node.metadata.items() if key != REGISTRATION}
    document = {
        "id": node.id,
        "cluster": node.cluster,
        "locality": dict(node.locality),
        "metadata": metadata,
    }
    found: bytes = json_format.ParseDict(document, base_pb2.Node()).SerializeToString()
    return found


def write_subscription(kind: Kind, type_url: str, names: Sequence[str], node: bytes) -> bytes:
    """Return the first request of a stream; no names at all ask for everything."""
    number = REQUEST[kind]
    return message(
        (number.node, node), (number.type_url, type_url), *((number.names, name) for name in names)
    )
