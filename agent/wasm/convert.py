"""ECDS responses: which extensions run a remote Wasm module, and what Envoy is told instead.

Only what has to change is written anew; all other bytes, unknown fields included, are copied.

Source: xds-identity-dns.md sections 3.1 to 3.3 and 7.2.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from agent.protobuf.edit import enumeration, integer, oneof, replaced, without
from agent.protobuf.response import PACKED, RESOURCES, Packed
from agent.protobuf.wire import LENGTH, WireError, embedded, fields, last, last_text, message
from agent.wasm.cache import Policy, PullSecret, Want

TYPES: Final = "type.googleapis.com/"
EXTENSION: Final = "envoy.config.core.v3.TypedExtensionConfig"
TYPED_STRUCT: Final = f"{TYPES}udpa.type.v1.TypedStruct"

# Field numbers, section 7.2; an Any is (1, 2).
NAME, TYPED_CONFIG = 1, 2
PLUGIN_CONFIG = 1
VM_CONFIG, FAIL_OPEN, FAILURE_POLICY = 3, 5, 7
CODE, ENVIRONMENT = 3, 7
LOCAL, REMOTE = 1, 2
HTTP_URI, SHA256 = 1, 2
URI, TIMEOUT = 1, 3
HOST_KEYS, KEY_VALUES = 1, 2
FAIL_OPEN_POLICY = 3

CONTROL_PREFIX: Final = "ISTIO_META_"
PULL_SECRET: Final = "ISTIO_META_WASM_IMAGE_PULL_SECRET"  # noqa: S105 - a name
PULL_POLICY: Final = "ISTIO_META_WASM_IMAGE_PULL_POLICY"
VERSION: Final = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"
#: What istiod sends for "any".
NO_CHECKSUM: Final = "nil"
TIMEOUT_SECONDS: Final = 5.0
POLICIES: Final = {policy.value: policy for policy in Policy}


class Filter(NamedTuple):
    """A kind of extension that runs Wasm."""

    type_url: str
    rbac: str  #: type of what takes its place
    stat_prefix: int  #: field of that


FILTERS: Final = {
    each.type_url: each
    for each in (
        Filter(
            f"{TYPES}envoy.extensions.filters.http.wasm.v3.Wasm",
            f"{TYPES}envoy.extensions.filters.http.rbac.v3.RBAC",
            6,
        ),
        Filter(
            f"{TYPES}envoy.extensions.filters.network.wasm.v3.Wasm",
            f"{TYPES}envoy.extensions.filters.network.rbac.v3.RBAC",
            3,
        ),
    )
}


class ExtensionError(ValueError):
    """A resource that no Envoy could use: the response is refused."""


class Failure(NamedTuple):
    """Why a module cannot be had: its extension is replaced."""

    reason: str
    result: str = "fetch_failure"  #: label of the metric


class Extension(NamedTuple):
    """A resource that is a TypedExtensionConfig."""

    name: str
    packed: bytes  #: the Any
    message: bytes  #: what is in it

    def __repr__(self) -> str:
        return f"<extension {self.name!r}>"

    def holding(self, type_url: str, content: bytes) -> bytes:
        """Return the resource, packed, with another configuration."""
        config = message((1, type_url), (2, content))
        return replaced(self.packed, 2, replaced(self.message, TYPED_CONFIG, config))


class Ready(NamedTuple):
    """A resource that Envoy can have as it is here."""

    packed: bytes


class Struct(NamedTuple):
    """A Wasm extension in JSON's form, for whoever knows it."""

    extension: Extension
    filter: Filter
    content: bytes  #: the google.protobuf.Struct

    def __repr__(self) -> str:
        return f"<extension {self.extension.name!r} in JSON>"


class Plugin(NamedTuple):
    """An extension that runs a remote module."""

    extension: Extension
    filter: Filter
    wasm: bytes  #: the Wasm message, without what is not for Envoy
    fails_open: bool
    want: Want | Failure


def write_resources(
    raw: bytes, resources: Sequence[Packed], contents: Iterable[bytes], *, delta: bool
) -> bytes:
    """Return the response with other contents of its resources, in the same order.

    Without any other it is the same response.
    """
    written = []
    for resource, content in zip(resources, contents, strict=True):
        if content == resource.content:
            written.append(resource.raw)
        else:
            written.append(replaced(resource.raw, PACKED, content) if delta else content)
    if written == [resource.raw for resource in resources]:
        return raw
    return without(raw, RESOURCES) + message(*((RESOURCES, each) for each in written))


def recognise(packed: bytes) -> Ready | Struct | Plugin:
    """Return what a resource is, section 3.1.

    Raises:
        ExtensionError: it is none.
    """
    try:
        type_url = last_text(packed, 1)
        if type_url.rpartition("/")[2] != EXTENSION:
            raise ExtensionError(f"expected a resource of {EXTENSION}, got {type_url!r}")
        body = last(packed, 2)
        config = embedded(body, TYPED_CONFIG)
        extension = Extension(last_text(body, NAME), packed, body)
        if config is None:
            raise ExtensionError(f"extension {extension.name!r} has no typed_config")
        return _recognise(extension, last_text(config, 1), last(config, 2))
    except WireError as error:
        raise ExtensionError(f"resource cannot be read: {error}") from None


def _recognise(extension: Extension, type_url: str, content: bytes) -> Ready | Struct | Plugin:
    if type_url in FILTERS:
        return recognise_wasm(extension, FILTERS[type_url], content)
    if type_url == TYPED_STRUCT and (inner := last_text(content, 1)) in FILTERS:
        return Struct(extension, FILTERS[inner], embedded(content, 2) or b"")
    return Ready(extension.packed)


def recognise_wasm(extension: Extension, kind: Filter, wasm: bytes) -> Ready | Plugin:
    """Return what a Wasm extension is.

    One with local code is ready as it is; a pull secret it has no use for is not passed on.

    Raises:
        ExtensionError: it has no code, or cannot be read.
    """
    try:
        config = embedded(wasm, PLUGIN_CONFIG) or b""
        vm = embedded(config, VM_CONFIG) or b""
        where, source = oneof(embedded(vm, CODE) or b"", (LOCAL, REMOTE))
        environment = embedded(vm, ENVIRONMENT) or b""
        values = _key_values(environment)
        if where == LOCAL and PULL_SECRET not in values:
            return Ready(extension.packed)
        for_envoy = _strip(environment, PULL_SECRET if where == LOCAL else CONTROL_PREFIX)
        vm = replaced(vm, ENVIRONMENT, for_envoy) if for_envoy else without(vm, ENVIRONMENT)
        wasm = replaced(wasm, PLUGIN_CONFIG, replaced(config, VM_CONFIG, vm))
        if where == LOCAL:
            return Ready(extension.holding(kind.type_url, wasm))
        if where == REMOTE:
            want = _want(extension.name, source, values)
            return Plugin(extension, kind, wasm, _fails_open(config), want)
    except WireError as error:
        raise ExtensionError(f"extension {extension.name!r}: {kind.type_url}: {error}") from None
    raise ExtensionError(
        f"extension {extension.name!r}: vm_config.code is neither remote nor local"
    )


def local(plugin: Plugin, path: str) -> bytes:
    """Return the extension, packed, that runs the module in a file."""
    config = embedded(plugin.wasm, PLUGIN_CONFIG) or b""
    vm = embedded(config, VM_CONFIG) or b""
    code = message((LOCAL, message((1, path))))
    vm = replaced(vm, CODE, code)
    wasm = replaced(plugin.wasm, PLUGIN_CONFIG, replaced(config, VM_CONFIG, vm))
    return plugin.extension.holding(plugin.filter.type_url, wasm)


def replacement(plugin: Plugin) -> bytes:
    """Return what takes the place of an extension without module: allow all, or deny all."""
    prefix = plugin.filter.stat_prefix
    if plugin.fails_open:
        rbac = message((prefix, "wasm-default-allow"))
    else:
        # Rules that are there and empty allow nothing.
        rbac = message((1, b""), (prefix, "wasm-default-deny"))
    return plugin.extension.holding(plugin.filter.rbac, rbac)


def _fails_open(config: bytes) -> bool:
    policy = enumeration(config, FAILURE_POLICY)
    return policy == FAIL_OPEN_POLICY if policy else bool(integer(config, FAIL_OPEN))


def _key_values(environment: bytes) -> Mapping[str, str]:
    values = {}
    for number, wire_type, start, end in fields(environment):
        if number == KEY_VALUES and wire_type == LENGTH:
            entry = environment[start:end]
            values[last_text(entry, 1)] = last_text(entry, 2)
    return values


def _strip(environment: bytes, prefix: str) -> bytes:
    """Return the environment without the keys of a prefix; nothing if nothing is left to say."""
    host_keys, values = [], []
    for number, wire_type, start, end in fields(environment):
        if wire_type != LENGTH:
            continue
        content = environment[start:end]
        if number == HOST_KEYS:
            host_keys.append((HOST_KEYS, content))
        elif number == KEY_VALUES and not last_text(content, 1).startswith(prefix):
            values.append((KEY_VALUES, content))
    return message(*host_keys, *values)


def _want(name: str, remote: bytes, values: Mapping[str, str]) -> Want | Failure:
    uri = embedded(remote, HTTP_URI)
    if uri is None:
        return Failure("remote code has no http_uri", "miss_remote_fetch_hint")
    secret = values.get(PULL_SECRET)
    if secret == "":
        return Failure("missing image pulling secret")
    checksum = last_text(remote, SHA256).lower()
    timeout = embedded(uri, TIMEOUT)
    return Want(
        resource=name,
        url=last_text(uri, URI),
        checksum="" if checksum == NO_CHECKSUM else checksum,
        timeout_seconds=TIMEOUT_SECONDS if timeout is None else _seconds(timeout),
        version=values.get(VERSION, ""),
        policy=POLICIES.get(values.get(PULL_POLICY, ""), Policy.UNSPECIFIED),
        secret=None if secret is None else PullSecret(secret),
    )


def _seconds(duration: bytes) -> float:
    nanoseconds = integer(duration, 2)
    return integer(duration, 1) + nanoseconds / 1e9
