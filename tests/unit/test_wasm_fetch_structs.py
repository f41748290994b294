"""Extensions in JSON's form. Section 3.1, step 5, T-W15."""

from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import StringValue

from agent.wasm.fetch.errors import FetchError
from agent.wasm.fetch.structs import convert_struct
from tests.fakes.wasm import Wasm, wasm

HTTP = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"


def converted(said: dict[str, Any], type_url: str = HTTP) -> Wasm:
    value = Struct()
    value.update(said)
    return type(wasm()).FromString(convert_struct(type_url, value.SerializeToString()))


def test_all_fields_are_taken() -> None:
    message = wasm(sha256="ab", environment={"A": "b"}, name="n", fail_open=True)
    message.config.configuration.Pack(StringValue(value="x"))
    message.config.capability_restriction_config.allowed_capabilities["a"].SetInParent()

    assert converted(MessageToDict(message)) == message
    assert converted(MessageToDict(message, preserving_proto_field_name=True)) == message


def test_nothing_makes_an_empty_extension() -> None:
    assert converted({}) == type(wasm())()


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"unknown": 1}, "no field named 'unknown' in Wasm"),
        ({"config": {"vmConfig": {"codes": {}}}}, "no field named 'codes' in Wasm.config.vmConfig"),
        ({"config": {"rootId": 5}}, "unusable value in config.rootId"),
        ({"config": {"failurePolicy": "hidden"}}, "unusable value in config.failurePolicy"),
        ({"config": "hidden"}, "unusable value in config"),
        ({"config": {"vmConfig": {"environmentVariables": {"keyValues": ["hidden"]}}}},
         "unusable value in config.environmentVariables.keyValues"),
        ({"config": {"configuration": {"@type": "type.googleapis.com/os.path", "value": 1}}},
         "unusable value in config.configuration"),
        ({"config": {"configuration": {"@type": "envoy.no.such.package.Type", "a": 1}}},
         "unusable value in config.configuration"),
        ({"config": {"configuration": {"a": "hidden"}}}, "unusable value in config.configuration"),
        ({"config": {"name": float("inf")}}, "cannot be read: ValueError"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_values_are_not_quoted(
    said: dict[str, Any], problem: str
) -> None:
    with pytest.raises(FetchError, match=problem) as caught:
        converted(said)

    assert str(caught.value).startswith("JSON of envoy.extensions.filters.http.wasm.v3.Wasm: ")
    assert "hidden" not in str(caught.value)


def test_bytes_that_are_no_struct_are_refused() -> None:
    with pytest.raises(FetchError, match="unusable value"):
        convert_struct(HTTP, b"\xff")


def test_a_type_that_does_not_exist_is_refused() -> None:
    with pytest.raises(FetchError, match=r"^JSON of envoy\.nothing\.Wasm: there is no such type$"):
        convert_struct("type.googleapis.com/envoy.nothing.Wasm", b"")
