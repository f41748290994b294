"""The relay between a client on its socket and a control plane. Source: section 11.2."""

import asyncio
import os
import stat
from pathlib import Path

import grpc
import pytest

from agent.errors import AgentError, SystemRefusedError
from agent.xds.discovery import (
    Kind,
    Resource,
    read_response,
    write_request,
    write_response,
)
from agent.xds.resources import CLUSTER, LISTENER, NAME_TABLE, PROXY_CONFIG
from agent.xds.run import serving
from agent.xds.settings import CredentialSettings, UpstreamSettings, XdsSettings
from tests.fakes.ads_client import ads_client
from tests.fakes.control_plane import control_plane
from tests.fakes.relay_bench import (
    CANCELLED,
    ENVOY_CANCELLED,
    ERROR,
    Counts,
    bench,
    response,
    streaming,
)


@pytest.mark.parametrize("kind", Kind)
async def test_each_type_is_asked_for_and_arrives_unchanged(kind: Kind, tmp_path: Path) -> None:
    """T-X1, T-X2."""
    unknown_field = b"\xfa\x01\x03abc"
    async with streaming(tmp_path, kind) as (b, call, stream):
        for type_url in (CLUSTER, LISTENER):
            request = write_request(kind, type_url) + unknown_field
            answer = response(kind, type_url, b"body") + unknown_field

            await call.send(request)
            assert await stream.receive() == request
            await stream.send(answer)
            assert await call.receive() == answer

    assert stream.kind is kind
    assert b.counts["xds_proxy_requests", ""] == 2
    assert b.counts["xds_proxy_responses", ""] == 2


async def test_the_socket_is_open_to_all_users_and_stale_ones_make_way(tmp_path: Path) -> None:
    (tmp_path / "proxy").mkdir()
    (tmp_path / "proxy" / "XDS").write_text("stale")

    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        mode = os.stat(b.path).st_mode  # noqa: PTH116 - a local file

    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o666


async def test_the_sockets_directory_is_made(tmp_path: Path) -> None:
    async with control_plane() as plane, bench(tmp_path, plane.address):
        assert stat.S_IMODE((tmp_path / "proxy").stat().st_mode) == 0o750


@pytest.mark.parametrize("place", ["x" * 120, "file"])
async def test_a_socket_that_cannot_be_made_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("no directory")

    with pytest.raises(SystemRefusedError, match="cannot"):
        async with bench(tmp_path / place, "127.0.0.1:1"):
            pass


async def test_metadata_and_token_go_upstream_with_each_stream(tmp_path: Path) -> None:
    """T-X17, C1."""
    metadata = (("clusterid", "c"), ("foo", "a=b"))
    async with control_plane() as plane, bench(tmp_path, plane.address, metadata=metadata) as b:
        b.client.open(Kind.DELTA)
        without = await plane.accept()
        (tmp_path / "token").write_text(" one\n")
        b.client.open(Kind.DELTA)
        first = await plane.accept()
        (tmp_path / "token").write_text("two")
        b.client.open(Kind.DELTA)
        second = await plane.accept()

    assert "authorization" not in without.metadata
    assert first.metadata["authorization"] == "Bearer one"
    assert second.metadata["authorization"] == "Bearer two"
    assert (second.metadata["clusterid"], second.metadata["foo"]) == ("c", "a=b")


async def test_half_closing_ends_the_stream_and_the_next_one_works(tmp_path: Path) -> None:
    """T-X6."""
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        call = b.client.open(Kind.SOTW)
        await call.send(write_request(Kind.SOTW, CLUSTER))
        stream = await plane.accept()
        await call.half_close()

        assert await call.status() == (grpc.StatusCode.OK, "")
        await stream.closed.wait()
        b.client.open(Kind.SOTW)
        await plane.accept()
        assert b.counts[ENVOY_CANCELLED] == 1


async def test_a_client_that_goes_away_takes_its_upstream_along(tmp_path: Path) -> None:
    async with streaming(tmp_path, Kind.DELTA) as (b, call, stream):
        call.cancel()

        await stream.closed.wait()
        await b.counts.reach(ENVOY_CANCELLED)


@pytest.mark.parametrize("kind", Kind)
async def test_a_second_stream_replaces_the_first(kind: Kind, tmp_path: Path) -> None:
    """T-X7: the first ends with OK, and is not counted."""
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        first = b.client.open(Kind.SOTW)
        old = await plane.accept()
        second = b.client.open(kind)
        new = await plane.accept()

        assert await first.status() == (grpc.StatusCode.OK, "")
        await old.closed.wait()
        await new.send(response(kind, CLUSTER))
        assert read_response(await second.receive()).type_url == CLUSTER
        assert not {ENVOY_CANCELLED, CANCELLED, ERROR} & set(b.counts)


async def test_the_end_of_a_stream_that_was_replaced_is_nothing_to_its_successor(
    tmp_path: Path,
) -> None:
    async with control_plane() as plane, bench(tmp_path, plane.address) as b, asyncio.timeout(10):
        first = b.client.open(Kind.DELTA)
        await plane.accept()
        second = b.client.open(Kind.DELTA)
        await plane.accept()
        assert await first.status() == (grpc.StatusCode.OK, "")
        b.client.open(Kind.DELTA)
        await plane.accept()

        assert await second.status() == (grpc.StatusCode.OK, "")


async def test_streams_that_replace_each_other_do_not_fill_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D-21."""
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        for _ in range(4):
            b.client.open(Kind.DELTA)
            await plane.accept()

    assert caplog.text.count("overlapping stream") == 1


@pytest.mark.parametrize("writes", [1, 3])
async def test_a_stream_is_replaced_even_while_a_write_to_it_waits(
    tmp_path: Path, writes: int
) -> None:
    push = response(Kind.DELTA, CLUSTER, b"x" * 5_000_000)
    async with control_plane() as plane, bench(tmp_path, plane.address) as b, asyncio.timeout(30):
        first = b.client.open(Kind.DELTA)
        old = await plane.accept()
        for _ in range(writes):
            await old.send(push)
            if writes > 1:
                await first.receive()
        await b.counts.reach(("xds_proxy_responses", ""), writes)
        b.client.open(Kind.DELTA)
        await plane.accept()

        await old.closed.wait()
        if writes == 1:
            assert await first.receive() == push
        assert await first.status() == (grpc.StatusCode.OK, "")


async def test_the_newest_of_several_streams_on_own_connections_stays(tmp_path: Path) -> None:
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        async with ads_client(b.path) as other:
            first = other.open(Kind.DELTA)
            await plane.accept()
            second = b.client.open(Kind.DELTA)
            stream = await plane.accept()
            assert (await first.status())[0] is grpc.StatusCode.OK

        await stream.send(response(Kind.DELTA, LISTENER))
        assert read_response(await second.receive()).type_url == LISTENER


@pytest.mark.parametrize("kind", Kind)
async def test_a_response_for_nobody_does_not_end_the_stream(kind: Kind, tmp_path: Path) -> None:
    """T-X14."""
    async with streaming(tmp_path, kind) as (b, call, stream):
        for type_url in (
            "istio.io/debug",
            "type.googleapis.com/istio.workload.Address",
            NAME_TABLE,
        ):
            await stream.send(response(kind, type_url, b"x"))
        await stream.send(response(kind, CLUSTER))

        assert read_response(await call.receive()).type_url == CLUSTER
        assert b.counts["xds_proxy_responses", ""] == 4


@pytest.mark.parametrize("kind", Kind)
async def test_a_request_for_debugging_goes_to_the_control_plane(
    kind: Kind, tmp_path: Path
) -> None:
    """Section 2.13: it is a request as any other; only its answer is for nobody here."""
    async with streaming(tmp_path, kind) as (_, call, stream):
        request = write_request(kind, "istio.io/debug") + b"\xfa\x01\x05syncz"
        await call.send(request)

        assert await stream.receive() == request


@pytest.mark.parametrize("kind", Kind)
async def test_consumed_types_are_subscribed_delivered_and_answered(
    kind: Kind, tmp_path: Path
) -> None:
    """T-X12, T-X13, X7, D-9; R-8: an empty set does not stall what comes after it."""
    delivered: list[bytes | None] = []

    def take(resource: bytes | None) -> None:
        delivered.append(resource)
        if resource == b"garbage":
            raise ValueError("no name table")

    async with (
        control_plane() as plane,
        bench(
            tmp_path,
            plane.address,
            deliver={NAME_TABLE: take},
            subscribe=(NAME_TABLE, PROXY_CONFIG),
        ) as b,
    ):
        call = b.client.open(kind)
        stream = await plane.accept()
        for type_url in (CLUSTER, LISTENER, LISTENER):
            await call.send(write_request(kind, type_url))
        asked = [await stream.request() for _ in range(5)]
        for nonce, bodies in (("1", [b"table"]), ("2", [b"garbage"]), ("3", [])):
            await stream.send(response(kind, NAME_TABLE, *bodies, nonce=nonce))
        wrong = Resource(CLUSTER, "", "", b"")
        await stream.send(
            write_response(kind, NAME_TABLE, version="1", nonce="4", resources=[wrong])
        )
        answers = [await stream.request() for _ in range(4)]
        await stream.send(response(kind, CLUSTER))

        assert read_response(await call.receive()).type_url == CLUSTER

    assert [each.type_url for each in asked] == [
        CLUSTER,
        LISTENER,
        NAME_TABLE,
        PROXY_CONFIG,
        LISTENER,
    ]
    assert [(each.nonce, each.error) for each in answers] == [
        ("1", None),
        ("2", "no name table"),
        ("3", None),
        ("4", f"expected a resource of {NAME_TABLE}, got {CLUSTER!r}"),
    ]
    assert delivered == [b"table", b"garbage", None]


async def test_a_handler_that_takes_its_time_holds_nothing_up(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def take(resource: bytes | None) -> None:
        await go_on.wait()
        if resource == b"garbage":
            raise ValueError("no name table")

    async with streaming(tmp_path, Kind.DELTA, deliver={NAME_TABLE: take}) as (_, call, stream):
        for nonce, body in (("1", b"garbage"), ("2", b"table")):
            await stream.send(response(Kind.DELTA, NAME_TABLE, body, nonce=nonce))
        await stream.send(response(Kind.DELTA, CLUSTER))

        assert read_response(await call.receive()).type_url == CLUSTER
        go_on.set()
        answers = [await stream.request() for _ in range(2)]

    assert [(each.nonce, each.error) for each in answers] == [("1", "no name table"), ("2", None)]


async def test_the_largest_request_is_kept_as_a_metric(tmp_path: Path) -> None:
    sizes = [write_request(Kind.DELTA, CLUSTER, error="x" * length) for length in (10, 50, 20)]
    async with streaming(tmp_path, Kind.DELTA) as (b, call, stream):
        for request in sizes:
            await call.send(request)
            await stream.receive()

        assert b.counts["pilot_xds_recv_max", ""] == len(sizes[1])


async def test_leaving_ends_the_stream(tmp_path: Path) -> None:
    async with control_plane() as plane:
        async with bench(tmp_path, plane.address) as b:
            b.client.open(Kind.DELTA)
            stream = await plane.accept()

        await stream.closed.wait()
        assert not os.path.exists(b.path)  # noqa: PTH110, ASYNC240 - a local file


async def test_a_root_that_is_missing_is_found_on_entering(tmp_path: Path) -> None:
    credentials = CredentialSettings(root=str(tmp_path / "root.pem"))
    upstream = UpstreamSettings(
        address="127.0.0.1:1", tls=True, server_name="x", credentials=credentials, metadata=()
    )

    with pytest.raises(AgentError, match=r"root\.pem \(XDS_ROOT_CA\): .*; correct XDS_ROOT_CA"):
        async with serving(XdsSettings(str(tmp_path / "XDS"), upstream), count=Counts().add):
            pass
