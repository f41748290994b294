"""ECDS resources: what is recognised, and what Envoy is told instead. Section 3, T-W14, T-W15."""

import pytest
from envoy.config.core.v3.extension_pb2 import TypedExtensionConfig
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as http_rbac
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.http.wasm.v3.wasm_pb2 import Wasm as HttpWasm
from envoy.extensions.filters.network.rbac.v3 import rbac_pb2 as network_rbac
from envoy.extensions.filters.network.wasm.v3.wasm_pb2 import Wasm as NetworkWasm
from envoy.extensions.wasm.v3.wasm_pb2 import FailurePolicy
from google.protobuf.any_pb2 import Any
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct
from xds.type.v3 import (  # type: ignore[import-untyped]  # has no types
    typed_struct_pb2 as xds_typed_struct,
)

from agent.protobuf.response import read_packed, read_removed
from agent.wasm.cache import Policy, PullSecret, Want
from agent.wasm.convert import (
    ExtensionError,
    Failure,
    Plugin,
    Ready,
    local,
    recognise,
    recognise_wasm,
    replacement,
    write_resources,
)
from agent.wasm.convert import Struct as InJson
from agent.xds.discovery import Kind
from tests.fakes.wasm import (
    Wasm,
    as_struct,
    ecds,
    http_wasm,
    local_wasm,
    packed,
    unpacked,
    wasm,
)

SECRET = "ISTIO_META_WASM_IMAGE_PULL_SECRET"  # noqa: S105 - a name
POLICY = "ISTIO_META_WASM_IMAGE_PULL_POLICY"
VERSION = "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION"


def plugin(message: Wasm) -> Plugin:
    found = recognise(packed(message))
    assert isinstance(found, Plugin)
    return found


def want(message: Wasm) -> Want:
    found = plugin(message).want
    assert isinstance(found, Want)
    return found


@pytest.mark.parametrize("kind", [HttpWasm, NetworkWasm])
def test_a_remote_module_becomes_a_local_file(kind: Wasm) -> None:
    message = wasm(kind=kind, environment={"KEY": "value", VERSION: "7"})
    message.config.name = "name"

    name, configuration = unpacked(local(plugin(message), "/modules/a.wasm"))

    changed = kind()
    assert name == "plugin"
    assert configuration.Unpack(changed)
    message.config.vm_config.code.local.filename = "/modules/a.wasm"
    del message.config.vm_config.environment_variables.key_values[VERSION]
    assert changed == message


def test_what_is_wanted() -> None:
    message = wasm(
        "oci://registry/image:tag",
        sha256="AB",
        timeout=1.5,
        environment={SECRET: "{}", POLICY: "Always", VERSION: "7"},
    )

    assert want(message) == Want(
        resource="plugin",
        url="oci://registry/image:tag",
        checksum="ab",
        timeout_seconds=1.5,
        version="7",
        policy=Policy.ALWAYS,
        secret=PullSecret("{}"),
    )


def test_what_is_wanted_where_nothing_is_said() -> None:
    found = want(wasm(sha256="nil", timeout=None, environment={POLICY: "Sometimes"}))

    assert found == Want("plugin", "http://modules/plugin.wasm")
    assert found.timeout_seconds == 5.0


@pytest.mark.parametrize(("seconds", "expected"), [(0, 0.0), (-1.5, -1.5)])
def test_a_timeout_may_be_none_at_all(seconds: float, expected: float) -> None:
    assert want(wasm(timeout=seconds)).timeout_seconds == expected


def test_no_secret_is_shown() -> None:
    message = wasm(environment={SECRET: "hidden"})
    found = plugin(message)
    raw = ecds(Kind.DELTA, {"plugin": message})

    assert "hidden" not in repr(found)
    assert "hidden" not in repr(recognise(packed(as_struct(message))))
    assert "hidden" not in repr(list(read_packed(raw, delta=True)))
    assert b"hidden" not in local(found, "/a")
    assert b"hidden" not in replacement(found)


@pytest.mark.parametrize(
    ("values", "host_keys", "kept"),
    [
        ({VERSION: "1"}, [], None),
        ({VERSION: "1"}, ["HOST"], ({}, ["HOST"])),
        ({VERSION: "1", "ISTIO_META_X": "", "A": "b"}, ["HOST"], ({"A": "b"}, ["HOST"])),
        ({"A": "b"}, [], ({"A": "b"}, [])),
        ({}, [], None),
    ],
)
def test_control_keys_do_not_reach_envoy(
    values: dict[str, str], host_keys: list[str], kept: tuple[dict[str, str], list[str]] | None
) -> None:
    message = wasm(environment=values)
    message.config.vm_config.environment_variables.host_env_keys.extend(host_keys)

    _, configuration = unpacked(local(plugin(message), "/a"))

    vm = http_wasm(configuration).config.vm_config
    assert vm.HasField("environment_variables") is (kept is not None)
    if kept:
        assert dict(vm.environment_variables.key_values) == kept[0]
        assert list(vm.environment_variables.host_env_keys) == kept[1]


@pytest.mark.parametrize(
    ("policy", "fail_open", "allows"),
    [
        (FailurePolicy.UNSPECIFIED, False, False),
        (FailurePolicy.UNSPECIFIED, True, True),
        (FailurePolicy.FAIL_OPEN, False, True),
        (FailurePolicy.FAIL_CLOSED, True, False),
        (FailurePolicy.FAIL_RELOAD, True, False),
    ],
)
def test_the_failure_policy_says_what_takes_its_place(
    policy: FailurePolicy,
    *,
    fail_open: bool,
    allows: bool,
) -> None:
    found = plugin(wasm(failure_policy=policy, fail_open=fail_open))

    name, configuration = unpacked(replacement(found))

    rbac = http_rbac.RBAC()
    assert name == "plugin"
    assert configuration.Unpack(rbac)
    assert rbac.HasField("rules") is not allows
    assert rbac.rules_stat_prefix == ("wasm-default-allow" if allows else "wasm-default-deny")


@pytest.mark.parametrize("allows", [True, False])
def test_a_network_filter_has_a_replacement_of_its_own(*, allows: bool) -> None:
    found = plugin(wasm(kind=NetworkWasm, fail_open=allows))

    _, configuration = unpacked(replacement(found))

    rbac = network_rbac.RBAC()
    assert configuration.Unpack(rbac)
    assert rbac.HasField("rules") is not allows
    assert rbac.stat_prefix == ("wasm-default-allow" if allows else "wasm-default-deny")


@pytest.mark.parametrize(
    "message",
    [
        local_wasm(),
        Router(),
        as_struct(wasm(), "type.googleapis.com/other"),
        xds_typed_struct.TypedStruct(type_url=as_struct(wasm()).type_url),
    ],
)
def test_what_runs_no_remote_module_is_unchanged(message: object) -> None:
    raw = packed(message)

    assert recognise(raw) == Ready(raw)


def test_a_pull_secret_is_not_passed_on_with_a_local_module_either() -> None:
    message = local_wasm()
    message.config.vm_config.environment_variables.key_values.update({SECRET: "x", VERSION: "1"})

    found = recognise(packed(message))

    del message.config.vm_config.environment_variables.key_values[SECRET]
    assert isinstance(found, Ready)
    assert http_wasm(unpacked(found.packed)[1]) == message


def test_an_environment_may_hold_what_is_not_known_here() -> None:
    message = wasm(environment={VERSION: "1", "A": "b"})
    vm = message.config.vm_config
    vm.environment_variables.MergeFromString(b"\x78\x01")

    changed = http_wasm(unpacked(local(plugin(message), "/a"))[1])

    assert dict(changed.config.vm_config.environment_variables.key_values) == {"A": "b"}


def test_json_is_recognised_for_who_knows_it() -> None:
    found = recognise(packed(as_struct(wasm())))

    assert isinstance(found, InJson)
    assert found.filter.type_url == as_struct(wasm()).type_url
    assert Struct.FromString(found.content) == as_struct(wasm()).value
    again = recognise_wasm(found.extension, found.filter, wasm().SerializeToString())
    assert isinstance(again, Plugin)
    assert http_wasm(unpacked(local(again, "/a"))[1]).config.vm_config.code.local.filename == "/a"


def test_a_remote_module_without_address_has_none() -> None:
    message = wasm()
    message.config.vm_config.code.remote.ClearField("http_uri")

    assert plugin(message).want == Failure("remote code has no http_uri", "miss_remote_fetch_hint")


def test_an_empty_pull_secret_is_one_that_is_missing() -> None:
    found = plugin(wasm(environment={SECRET: ""})).want

    assert found == Failure("missing image pulling secret")


def resource(message: Wasm) -> bytes:
    raw = Any()
    raw.Pack(message)
    return raw.SerializeToString()


BROKEN = TypedExtensionConfig(name="x")
BROKEN.typed_config.type_url = as_struct(wasm()).type_url
BROKEN.typed_config.value = b"\x0a\xff"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (resource(Empty()), r"expected a resource of .*TypedExtensionConfig, got '.*Empty'"),
        (b"", "expected a resource of"),
        (b"\xff", "resource cannot be read: "),
        (resource(TypedExtensionConfig(name="x")), "extension 'x' has no typed_config"),
        (packed(HttpWasm()), "'plugin': vm_config.code is neither remote nor local"),
        (resource(BROKEN), "extension 'x': .*Wasm: "),
    ],
)
def test_what_is_no_extension_is_refused(raw: bytes, problem: str) -> None:
    with pytest.raises(ExtensionError, match=problem):
        recognise(raw)


@pytest.mark.parametrize("kind", Kind)
def test_a_response_is_taken_apart_and_put_together(kind: Kind) -> None:
    delta = kind is Kind.DELTA
    raw = ecds(kind, {"a": local_wasm(), "b": wasm()}, removed=("c",)) + b"\xfa\x01\x03abc"

    resources = list(read_packed(raw, delta=delta))
    contents = [resource.content for resource in resources]
    same = write_resources(raw, resources, contents, delta=delta)
    other = write_resources(raw, resources, [contents[0], packed(Router(), "b")], delta=delta)

    assert same is raw
    assert b"\xfa\x01\x03abc" in other
    assert read_removed(other) == (["c"] if delta else [])
    again = list(read_packed(other, delta=delta))
    assert again[0] == resources[0]
    assert again[1].name == resources[1].name
    assert unpacked(again[1].content)[1].Is(Router.DESCRIPTOR)
