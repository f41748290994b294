"""Resources as JSON has them, with nothing secret left in them.

What is secret: fields that Envoy's types mark as sensitive, which Envoy's own config_dump blanks
too; private keys wherever they stand; and the pull secret of a Wasm module.

A type that no installed class knows is shown by the numbers of its fields.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from google.protobuf import any_pb2, json_format, struct_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from udpa.annotations import sensitive_pb2  # type: ignore[import-untyped]  # xds-protos has none

from agent.dns.names import read_entry
from agent.protobuf.classes import TYPE_KEY, message_class
from agent.protobuf.wire import LENGTH, WireError, fields
from agent.query.wire import PRIVATE_KEY, REDACTED, as_text, decode, encode
from agent.xds.discovery import Resource
from agent.xds.resources import NAME_TABLE, PROXY_CONFIG, SECRET

#: Source: xds-identity-dns.md section 3.2.
PULL_SECRET: Final = "ISTIO_META_WASM_IMAGE_PULL_SECRET"  # noqa: S105 - its name
#: Of messages that have no class here.
FIELD_NAMES: Final = {PROXY_CONFIG: {34: "ca_certificates_pem"}}
#: Stands for an Any of an unknown type while the message around it is turned into JSON.
MARK: Final = "@unknown"

Document = dict[str, Any]  # JSON


def render(resource: Resource) -> Document:
    """Return a resource, its type first: as files of resources have it.

    Raises:
        WireError: it cannot be read.
    """
    type_url, body = resource.type_url, resource.body
    if type_url == NAME_TABLE:
        return {TYPE_KEY: type_url, "table": _name_table(body)}
    found = _Renderer().any(type_url, body)
    return {TYPE_KEY: type_url, **_masked(found)}


def _name_table(body: bytes) -> Document:
    shared: dict[str, str] = {}
    entries = (
        read_entry(body[start:end], shared)
        for field, wire_type, start, end in fields(body)
        if field == 1 and wire_type == LENGTH
    )
    return {
        entry.host: {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in entry._asdict().items()
            if value and key != "host"
        }
        for entry in entries
    }


class _Renderer:
    """One resource, and what is unknown in it."""

    def __init__(self) -> None:
        self._unknown: list[Document] = []

    def any(self, type_url: str, body: bytes) -> Document:
        """Return what an Any holds, without its type."""
        message = _parsed(type_url, body)
        if message is None:
            return _undecoded(type_url, body)
        self._prepare(message)
        found: Document = json_format.MessageToDict(message, preserving_proto_field_name=True)
        restored = self._restored(found)
        return restored if isinstance(restored, dict) else {"value": restored}

    def _prepare(self, message: Message) -> None:
        """Blank what is secret, and leave no Any that cannot be turned into JSON."""
        if isinstance(message, any_pb2.Any):
            self._prepare_any(message)
            return
        for field, value in message.ListFields():
            if _is_sensitive(field):
                message.ClearField(field.name)
                _blank(message, field)
            elif field.type == FieldDescriptor.TYPE_MESSAGE:
                for each in _messages(field, value):
                    self._prepare(each)
            elif field.type == FieldDescriptor.TYPE_BYTES and _holds_key(value):
                message.ClearField(field.name)

    def _prepare_any(self, packed: any_pb2.Any) -> None:
        inner = _parsed(packed.type_url, packed.value)
        if inner is None:
            mark = struct_pb2.Struct()
            mark[MARK] = len(self._unknown)
            self._unknown.append(
                {TYPE_KEY: packed.type_url, **_undecoded(packed.type_url, packed.value)}
            )
            packed.Pack(mark)
        else:
            self._prepare(inner)
            packed.value = inner.SerializeToString(deterministic=True)

    def _restored(self, value: object) -> object:
        if isinstance(value, list):
            return [self._restored(each) for each in value]
        if not isinstance(value, dict):
            return value
        struct = value.get("value")
        if TYPE_KEY in value and isinstance(struct, dict) and MARK in struct:
            return self._unknown[int(struct[MARK])]
        return {key: self._restored(each) for key, each in value.items()}


def _parsed(type_url: str, body: bytes) -> Message | None:
    """Return a message of a known type; none of an unknown one, or if it cannot be read."""
    made = message_class(type_url)
    try:
        return made.FromString(body) if made else None
    except DecodeError:
        return None


def _undecoded(type_url: str, body: bytes) -> Document:
    if type_url == SECRET:
        raise WireError("a secret that cannot be read is not shown")
    text = as_text(body)
    if text:
        try:
            return {"value": json.loads(text)}  # as istiod's answers to istio.io/debug
        except ValueError:
            pass
    try:
        return decode(body, FIELD_NAMES.get(type_url, {}))
    except WireError:
        return {"value": encode(body) if text is None else text}


def _holds_key(value: Any) -> bool:  # noqa: ANN401 - bytes, or protobuf's container of them
    contents = (value,) if isinstance(value, bytes) else value
    return any(PRIVATE_KEY.encode() in each for each in contents)


def _messages(field: FieldDescriptor, value: Any) -> Iterable[Message]:  # noqa: ANN401 - protobuf's containers
    if not field.is_repeated:
        return (value,)
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return list(value)
    is_message = entry.fields_by_name["value"].type == FieldDescriptor.TYPE_MESSAGE
    return list(value.values()) if is_message else ()


@functools.cache
def _is_sensitive(field: FieldDescriptor) -> bool:
    return bool(field.GetOptions().Extensions[sensitive_pb2.sensitive])


def _blank(message: Message, field: FieldDescriptor) -> None:
    """Let text say that it was blanked; whatever else is sensitive is left out."""
    if field.type == FieldDescriptor.TYPE_STRING and not field.is_repeated:
        setattr(message, field.name, REDACTED)
    elif _is_source(field) and not field.is_repeated:
        getattr(message, field.name).inline_string = REDACTED


def _is_source(field: FieldDescriptor) -> bool:
    return "inline_string" in getattr(field.message_type, "fields_by_name", ())


def _masked(value: Mapping[str, Any]) -> Document:
    """Return a document without private keys in texts, and without pull secrets."""
    return {key: REDACTED if key == PULL_SECRET else _mask(each) for key, each in value.items()}


def _mask(value: object) -> object:
    if isinstance(value, dict):
        return _masked(value)
    if isinstance(value, list):
        return [_mask(each) for each in value]
    return REDACTED if isinstance(value, str) and PRIVATE_KEY in value else value
