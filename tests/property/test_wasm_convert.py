"""Extensions are rewritten as protobuf would rewrite them, and no bytes do harm."""

from typing import Any

from envoy.config.core.v3.base_pb2 import RemoteDataSource
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.extensions.filters.http.wasm.v3.wasm_pb2 import Wasm as HttpWasm
from envoy.extensions.filters.network.wasm.v3.wasm_pb2 import Wasm as NetworkWasm
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from agent.protobuf.edit import enumeration, integer, oneof, replaced, without
from agent.protobuf.response import read_packed, read_removed
from agent.protobuf.wire import WireError, embedded, last, message
from agent.wasm.cache import Want
from agent.wasm.convert import (
    ExtensionError,
    Plugin,
    Ready,
    local,
    recognise,
    replacement,
    write_resources,
)
from agent.xds.discovery import Kind, Resource, write_response
from agent.xds.resources import EXTENSION
from tests.fakes.wasm import packed, unpacked

TEXT = st.text(max_size=6)
KEYS = st.one_of(TEXT, st.sampled_from(("ISTIO_META_", "ISTIO_META_A", "ISTIO_MET", "KEY")))
PIECES = st.one_of(
    st.binary(max_size=6),
    st.tuples(st.integers(0, 9), st.one_of(TEXT, st.binary(max_size=9), st.integers(0, 2**64 - 1)))
    .map(message),
)  # fmt: skip
HOSTILE = st.lists(PIECES, max_size=8).map(b"".join)


@st.composite
def extensions(draw: st.DrawFn) -> Any:  # noqa: ANN401 - envoy's classes have no types
    made = draw(st.sampled_from((HttpWasm, NetworkWasm)))()
    config = made.config
    config.name = draw(TEXT)
    config.fail_open = draw(st.booleans())
    config.failure_policy = draw(st.integers(0, 3))
    config.configuration.value = draw(st.binary(max_size=4))
    vm = config.vm_config
    vm.runtime = draw(TEXT)
    if draw(st.booleans()):
        vm.environment_variables.host_env_keys.extend(draw(st.lists(TEXT, max_size=2)))
        vm.environment_variables.key_values.update(draw(st.dictionaries(KEYS, TEXT, max_size=3)))
    if draw(st.booleans()):
        vm.code.local.filename = draw(TEXT)
    if draw(st.booleans()):
        remote = vm.code.remote
        remote.sha256 = draw(TEXT)
        remote.http_uri.uri = draw(TEXT)
        if draw(st.booleans()):
            remote.http_uri.timeout.seconds = draw(st.integers(-(10**6), 10**6))
            remote.http_uri.timeout.nanos = draw(st.integers(-999_999_999, 999_999_999))
    return made


def rewritten(made: Any, path: str) -> Any:  # noqa: ANN401 - envoy's classes have no types
    """Return what protobuf makes of it."""
    changed = type(made)()
    changed.CopyFrom(made)
    vm = changed.config.vm_config
    vm.code.local.filename = path
    values = vm.environment_variables.key_values
    for key in [key for key in values if key.startswith("ISTIO_META_")]:
        del values[key]
    if not values and not vm.environment_variables.host_env_keys:
        vm.ClearField("environment_variables")
    return changed


@given(st.lists(extensions(), min_size=1, max_size=2), TEXT, st.data())
def test_a_module_is_put_in_place_as_protobuf_would(
    parts: list[Any], path: str, data: st.DataObject
) -> None:
    """Of two parts, joined bytes are one message: how protobuf merges is held to as well."""
    kind = type(parts[0])
    joined_parts = b"".join(part.SerializeToString() for part in parts if type(part) is kind)
    made = kind.FromString(joined_parts)
    resource = _resource(kind, joined_parts, name=data.draw(TEXT))

    try:
        found = recognise(resource)
    except ExtensionError:
        assert made.config.vm_config.code.WhichOneof("specifier") is None
        return

    if made.config.vm_config.code.WhichOneof("specifier") == "local":
        assert found == Ready(resource)
        return
    assert isinstance(found, Plugin)
    changed = kind()
    assert unpacked(local(found, path))[1].Unpack(changed)
    assert changed == rewritten(made, path)
    assert found.fails_open == (
        made.config.failure_policy == 3 if made.config.failure_policy else made.config.fail_open
    )
    assert unpacked(replacement(found))[0] == unpacked(resource)[0]
    if isinstance(found.want, Want):
        uri = made.config.vm_config.code.remote.http_uri
        assert found.want.url == uri.uri
        if uri.HasField("timeout"):
            assert found.want.timeout_seconds == uri.timeout.seconds + uri.timeout.nanos / 1e9


def _resource(kind: Any, content: bytes, name: str) -> bytes:  # noqa: ANN401 - a class without types
    extension = TypedExtensionConfig(name=name)
    extension.typed_config.type_url = f"type.googleapis.com/{kind.DESCRIPTOR.full_name}"
    extension.typed_config.value = content
    resource = AnyMessage()
    resource.Pack(extension)
    return resource.SerializeToString()


@given(HOSTILE)
def test_no_bytes_do_harm(raw: bytes) -> None:
    resource = _resource(HttpWasm, raw, "x")

    try:
        found = recognise(resource)
    except ExtensionError:
        return

    if isinstance(found, Plugin):
        local(found, "/a")
        replacement(found)


@given(HOSTILE, st.sampled_from(Kind))
def test_no_response_does_harm(raw: bytes, kind: Kind) -> None:
    try:
        for each in read_packed(raw, delta=kind is Kind.DELTA):
            recognise(each.content)
    except (WireError, ExtensionError):
        return


@given(
    st.lists(st.tuples(TEXT, st.booleans()), max_size=4),
    st.sampled_from(Kind),
    st.binary(max_size=3),
)
def test_a_response_keeps_all_but_what_was_replaced(
    resources: list[tuple[str, bool]], kind: Kind, body: bytes
) -> None:
    delta = kind is Kind.DELTA
    entries = [Resource(EXTENSION, name, "v", body) for name, _ in resources]
    raw = write_response(
        kind, EXTENSION, version="1", nonce="n", resources=entries, removed=("gone",)
    )
    found = list(read_packed(raw, delta=delta))
    other = packed(HttpWasm(), "other")

    wanted = [
        other if changes else each.content
        for each, (_, changes) in zip(found, resources, strict=True)
    ]
    written = write_resources(raw, found, wanted, delta=delta)

    again = list(read_packed(written, delta=delta))
    assert [each.content for each in again] == wanted
    assert [each.name for each in again] == [each.name for each in found]
    assert read_removed(written) == (["gone"] if delta else [])
    assert without(written, 2) == without(raw, 2)


@given(HOSTILE)
@example(message((1, b"a"), (1, 2**64 - 1)))
def test_fields_are_read_as_protobuf_reads_them(raw: bytes) -> None:
    """With a message that has a text, an embedded message and both numbers."""
    try:
        expected = RemoteDataSource.FromString(raw)
        values = last(raw, 2), embedded(raw, 1), oneof(raw, (1,)), integer(raw, 9)
        replaced(raw, 1, b"")
        enumeration(raw, 9)
    except (DecodeError, WireError):
        return

    assert values[0].decode() == expected.sha256
    assert (values[1] is not None) is expected.HasField("http_uri")
    assert values[2] == ((1, values[1]) if values[1] is not None else (0, b""))
