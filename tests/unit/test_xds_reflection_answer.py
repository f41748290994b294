"""What a server says of its services: the reflection protocol."""

import pytest
from envoy.service.discovery.v3 import ads_pb2
from google.protobuf import descriptor_pb2

from agent.protobuf.wire import WireError, fields, last, last_text, message
from agent.xds.reflection.__main__ import collect
from agent.xds.reflection.answer import Answers

ADS = "envoy.service.discovery.v3.AggregatedDiscoveryService"
FILE = "envoy/service/discovery/v3/ads.proto"


@pytest.fixture(scope="module")
def answers() -> Answers:
    found: dict[str, bytes] = {}
    collect(ads_pb2.DESCRIPTOR, found)
    files = [descriptor_pb2.FileDescriptorProto.FromString(raw) for raw in found.values()]
    return Answers([ADS], descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())


def names(response: bytes) -> list[str]:
    """Return the names of the files in a response."""
    found = last(response, 4)
    return [last_text(found[start:end], 1) for _, _, start, end in fields(found)]


def test_services_are_listed(answers: Answers) -> None:
    request = message((1, "host"), (7, ""))

    response = answers.answer(request)

    assert last(response, 2) == request
    assert last_text(last(last(response, 6), 1), 1) == ADS


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ((3, FILE), FILE),
        ((3, "google/protobuf/any.proto"), "google/protobuf/any.proto"),
        ((4, ADS), FILE),
        ((4, f"{ADS}.StreamAggregatedResources"), FILE),
        ((4, "envoy.config.core.v3.Node"), "envoy/config/core/v3/base.proto"),
        ((4, "envoy.config.core.v3.RoutingPriority"), "envoy/config/core/v3/base.proto"),
        (
            (4, "envoy.service.discovery.v3.DeltaDiscoveryResponse"),
            "envoy/service/discovery/v3/discovery.proto",
        ),
        (
            (4, "google.protobuf.DescriptorProto.ExtensionRange"),
            "google/protobuf/descriptor.proto",
        ),
    ],
)
def test_a_file_comes_with_all_that_it_needs(
    asked: tuple[int, str], first: str, answers: Answers
) -> None:
    found = names(answers.answer(message(asked)))

    assert found[0] == first
    assert len(found) == len(set(found))
    if first == FILE:
        assert {"google/protobuf/any.proto", "envoy/config/core/v3/base.proto"} < set(found)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (message((3, "nothing.proto")), 5),
        (message((4, "grpc.health.v1.Health")), 5),
        (message((5, message((1, "x"), (2, 1)))), 12),
        (b"", 12),
    ],
)
def test_what_is_not_there_is_an_error_in_the_answer(
    request_: bytes, code: int, answers: Answers
) -> None:
    error = last(answers.answer(request_), 7)

    assert message((1, code)) == error[:2]
    assert last_text(error, 2)


def test_what_is_no_request_is_refused(answers: Answers) -> None:
    with pytest.raises(WireError):
        answers.answer(b"\xff")
