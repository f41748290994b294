"""Extensions that run Wasm, made with protobuf as istiod makes them, and modules for them."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.extensions.filters.http.wasm.v3.wasm_pb2 import Wasm as HttpWasm
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryResponse
from google.protobuf import json_format
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Struct
from udpa.type.v1.typed_struct_pb2 import (  # type: ignore[import-untyped]  # has no types
    TypedStruct,
)

from agent.xds.discovery import Kind, Resource, read_resources, write_response
from agent.xds.resources import EXTENSION

MODULE = b"\0asm\1\0\0\0" + b"module"
#: Either; envoy's classes have no types.
Wasm: TypeAlias = Any


def wasm(
    uri: str = "http://modules/plugin.wasm",
    *,
    kind: Wasm = HttpWasm,
    sha256: str = "",
    timeout: float | None = 10.0,
    environment: Mapping[str, str] | None = None,
    **config: Any,  # noqa: ANN401 - of any field of PluginConfig
) -> Wasm:
    """Return an extension with remote code."""
    message = kind()
    message.config.vm_config.runtime = "envoy.wasm.runtime.v8"
    remote = message.config.vm_config.code.remote
    remote.sha256 = sha256
    remote.http_uri.uri = uri
    remote.http_uri.cluster = "_"
    if timeout is not None:
        remote.http_uri.timeout.FromNanoseconds(int(timeout * 1e9))
    if environment:
        message.config.vm_config.environment_variables.key_values.update(environment)
    for field, value in config.items():
        setattr(message.config, field, value)
    return message


def local_wasm(filename: str = "/etc/plugin.wasm") -> Wasm:
    """Return an extension with local code."""
    message = HttpWasm()
    message.config.vm_config.code.local.filename = filename
    return message


def as_struct(message: Wasm, type_url: str = "", **more: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the same in JSON's form, a TypedStruct, perhaps with further fields."""
    value = Struct()
    value.update({**json_format.MessageToDict(message), **more})
    type_url = type_url or f"type.googleapis.com/{message.DESCRIPTOR.full_name}"
    return TypedStruct(type_url=type_url, value=value)


def packed(message: Any, name: str = "plugin") -> bytes:  # noqa: ANN401 - any message
    """Return a resource: an Any with a TypedExtensionConfig."""
    extension = TypedExtensionConfig(name=name)
    extension.typed_config.Pack(message)
    resource = AnyMessage()
    resource.Pack(extension)
    return resource.SerializeToString()


def unpacked(resource: bytes) -> tuple[str, AnyMessage]:
    """Return name and configuration of a packed resource."""
    extension = TypedExtensionConfig()
    assert AnyMessage.FromString(resource).Unpack(extension)
    return extension.name, extension.typed_config


def ecds(
    kind: Kind,
    resources: Mapping[str, Any],
    *,
    nonce: str = "n",
    version: str = "1",
    removed: tuple[str, ...] = (),
) -> bytes:
    """Return a response with these configurations, by name."""
    entries = [
        Resource(EXTENSION, name, version, AnyMessage.FromString(packed(message, name)).value)
        for name, message in resources.items()
    ]
    return write_response(
        kind, EXTENSION, version=version, nonce=nonce, resources=entries, removed=removed
    )


def configurations(kind: Kind, raw: bytes) -> dict[str, AnyMessage]:
    """Return the configurations in a response, by name."""
    found = {}
    for body in _bodies(kind, raw):
        extension = TypedExtensionConfig.FromString(body)
        found[extension.name] = extension.typed_config
    return found


def _bodies(kind: Kind, raw: bytes) -> list[bytes]:
    if kind is Kind.DELTA:
        return [resource.body for resource in read_resources(raw)[1]]
    return [resource.value for resource in DiscoveryResponse.FromString(raw).resources]


def http_wasm(configuration: AnyMessage) -> Wasm:
    """Return a configuration that must be native HTTP Wasm."""
    message = HttpWasm()
    assert configuration.Unpack(message), configuration.type_url
    return message
