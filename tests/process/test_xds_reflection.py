"""gRPC server reflection on Envoy's socket, as grpcurl uses it. Section 2.1."""

from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_database, descriptor_pb2, descriptor_pool

from agent.protobuf.wire import last, last_text, message
from tests.fakes.control_plane import control_plane
from tests.fakes.relay_bench import bench

ADS = "envoy.service.discovery.v3.AggregatedDiscoveryService"


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_the_service_describes_itself(version: str, tmp_path: Path) -> None:
    method = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    async with (
        control_plane() as plane,
        bench(tmp_path, plane.address) as b,
        grpc.aio.insecure_channel(f"unix:{b.path}") as channel,
    ):
        call = channel.stream_stream(method, None, None)(None)
        answers = []
        for asked in (message((7, "")), message((4, ADS))):
            await call.write(asked)
            answers.append(await call.read())
        await call.write(b"\xff")
        code = await call.code()

    listed, described = answers
    assert isinstance(listed, bytes)
    assert isinstance(described, bytes)
    assert last_text(last(last(listed, 6), 1), 1) == ADS
    database = descriptor_database.DescriptorDatabase()
    for file in descriptor_pb2.FileDescriptorSet.FromString(last(described, 4)).file:
        database.Add(file)
    service = descriptor_pool.DescriptorPool(database).FindServiceByName(ADS)
    assert [each.name for each in service.methods] == [
        "StreamAggregatedResources",
        "DeltaAggregatedResources",
    ]
    assert code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.slow
async def test_what_fails_once_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    async with (
        control_plane() as plane,
        bench(tmp_path, plane.address) as b,
        grpc.aio.insecure_channel(f"unix:{b.path}") as channel,
    ):
        with monkeypatch.context() as environ:
            environ.setenv("PYTHONHOME", "/nowhere")  # no Python can be started
            refused = channel.stream_stream(method, None, None)(None)
            status = await refused.code(), await refused.details()
        call = channel.stream_stream(method, None, None)(None)
        await call.write(message((4, ADS)))
        described = await call.read()
        call.cancel()

    assert status == (
        grpc.StatusCode.UNAVAILABLE,
        "no descriptors: the process that has them exited with 1",
    )
    assert isinstance(described, bytes)
    assert last(described, 4)
