"""The relay between a client on its socket and a control plane. Source: section 11.2."""

import asyncio
import contextlib
import logging
import os
import stat
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import grpc
import pytest

from agent.errors import AgentError, SystemRefusedError
from agent.xds.discovery import (
    Kind,
    Request,
    Resource,
    read_request,
    read_response,
    write_request,
    write_response,
)
from agent.xds.resources import CLUSTER, LISTENER, NAME_TABLE, PROXY_CONFIG
from agent.xds.run import Consume, Relay, serving
from agent.xds.settings import (
    CredentialSettings,
    KeepaliveSettings,
    UpstreamSettings,
    XdsSettings,
)
from tests.fakes.ads_client import AdsClient, ads_client
from tests.fakes.control_plane import Stream, control_plane
from tests.fakes.link import GOAWAY_NO_ERROR, link

CANCELLED = ("istiod_connection_terminations", "cancelled")
ERROR = ("istiod_connection_terminations", "error")
ENVOY_CANCELLED = ("envoy_connection_terminations", "cancelled")


class Counts(Counter[tuple[str, str]]):
    """Counters by name and type label; `changed` is set by each."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = asyncio.Event()

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        self[name, labels.get("type", "")] += amount
        self.changed.set()

    async def reach(self, key: tuple[str, str], value: int = 1) -> None:
        async with asyncio.timeout(10):
            while self[key] < value:
                self.changed.clear()
                await self.changed.wait()


class Bench:
    """A relay, its client and what it counted."""

    def __init__(self, relay: Relay, client: AdsClient, counts: Counts, path: str) -> None:
        self.relay = relay
        self.client = client
        self.counts = counts
        self.path = path


@contextlib.asynccontextmanager
async def bench(
    directory: Path,
    address: str,
    *,
    deliver: Mapping[str, Consume] | None = None,
    subscribe: tuple[str, ...] = (),
    metadata: tuple[tuple[str, str], ...] = (("clusterid", ""),),
    keepalive: KeepaliveSettings = KeepaliveSettings(),  # noqa: B008 - immutable
    max_receive_bytes: int = 4_194_304,
) -> AsyncIterator[Bench]:
    """Run a relay to a plaintext control plane, and connect a client."""
    settings = XdsSettings(
        socket_path=str(directory / "proxy" / "XDS"),
        upstream=UpstreamSettings(
            address=address,
            tls=False,
            server_name="istiod",
            credentials=CredentialSettings(),
            metadata=metadata,
            token_path=str(directory / "token"),
        ),
        keepalive=keepalive,
        max_receive_bytes=max_receive_bytes,
    )
    counts = Counts()
    async with (
        serving(settings, count=counts.add, deliver=deliver, subscribe=subscribe) as relay,
        ads_client(settings.socket_path) as client,
    ):
        yield Bench(relay, client, counts, settings.socket_path)


def response(kind: Kind, type_url: str, *bodies: bytes, nonce: str = "n") -> bytes:
    resources = [Resource(type_url, f"r{i}", "1", body) for i, body in enumerate(bodies)]
    return write_response(kind, type_url, version="1", nonce=nonce, resources=resources)


@pytest.mark.parametrize("kind", Kind)
async def test_each_type_is_asked_for_and_arrives_unchanged(kind: Kind, tmp_path: Path) -> None:
    """T-X1, T-X2."""
    unknown_field = b"\xfa\x01\x03abc"
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        call = b.client.open(kind)
        stream = await plane.accept()
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
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        call = b.client.open(Kind.DELTA)
        stream = await plane.accept()
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


async def test_a_restarted_control_plane_is_found_again(tmp_path: Path) -> None:
    """T-X8, X10: its end never looks like an empty set."""
    async with contextlib.AsyncExitStack() as stack:
        async with control_plane() as plane:
            b = await stack.enter_async_context(bench(tmp_path, plane.address))
            call = b.client.open(Kind.DELTA)
            await plane.accept()

        with pytest.raises(grpc.aio.AioRpcError):
            await call.receive()
        refused = b.client.open(Kind.DELTA)
        code, details = await refused.status()
        problem = b.relay.problem()

        async with control_plane(port=plane.port) as again:
            call = b.client.open(Kind.DELTA)
            await (await again.accept()).send(response(Kind.DELTA, CLUSTER))
            assert read_response(await call.receive()).type_url == CLUSTER

            assert code is grpc.StatusCode.UNAVAILABLE
            assert "failed to connect" in details
            assert plane.address in str(problem)
            assert b.counts[ERROR] >= 1
            assert b.relay.problem() is None


@pytest.mark.parametrize("kind", Kind)
async def test_a_response_for_nobody_does_not_end_the_stream(kind: Kind, tmp_path: Path) -> None:
    """T-X14."""
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        call = b.client.open(kind)
        stream = await plane.accept()
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
async def test_consumed_types_are_subscribed_delivered_and_answered(
    kind: Kind, tmp_path: Path
) -> None:
    """T-X12, T-X13, X7, D-9."""
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
        asked = [await received(stream) for _ in range(5)]
        for nonce, bodies in (("1", [b"table"]), ("2", [b"garbage"]), ("3", [])):
            await stream.send(response(kind, NAME_TABLE, *bodies, nonce=nonce))
        wrong = Resource(CLUSTER, "", "", b"")
        await stream.send(
            write_response(kind, NAME_TABLE, version="1", nonce="4", resources=[wrong])
        )
        answers = [await received(stream) for _ in range(4)]
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


async def received(stream: Stream) -> Request:
    raw = await stream.receive()
    assert raw is not None
    return read_request(stream.kind, raw)


@pytest.mark.slow
async def test_a_storm_of_requests_and_pushes_does_not_deadlock(tmp_path: Path) -> None:
    """T-X15, X3, R-1: nobody reads what the other sends, and both go on."""
    request = write_request(Kind.SOTW, CLUSTER, error="x" * 2000)
    push = response(Kind.SOTW, CLUSTER, b"y" * 100_000)
    async with control_plane() as plane, bench(tmp_path, plane.address) as b, asyncio.timeout(60):
        call = b.client.open(Kind.SOTW)
        stream = await plane.accept()

        for _ in range(10_000):
            await call.send(request)
        _, pushed = await asyncio.gather(stream.send(push), call.receive())
        assert pushed == push
        for _ in range(10_000):
            assert await stream.receive() == request
        assert b.counts["xds_proxy_requests", ""] == 10_000


@pytest.mark.slow
async def test_an_envoy_that_does_not_read_slows_the_push_down(tmp_path: Path) -> None:
    """X3: responses wait at the control plane, and requests still pass."""
    request = write_request(Kind.SOTW, CLUSTER)
    push = response(Kind.SOTW, CLUSTER, b"y" * 1_000_000)

    async def push_all(stream: Stream) -> None:
        for _ in range(50):
            await stream.send(push)

    async with control_plane() as plane, bench(tmp_path, plane.address) as b, asyncio.timeout(60):
        call = b.client.open(Kind.SOTW)
        stream = await plane.accept()
        async with asyncio.TaskGroup() as group:
            group.create_task(push_all(stream))
            for _ in range(1000):
                await call.send(request)
                assert await stream.receive() == request
            held = b.counts["xds_proxy_responses", ""]
            for _ in range(50):
                assert await call.receive() == push

    assert held < 25


@pytest.mark.slow
async def test_a_control_plane_that_never_reads_ends_the_stream_in_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D-20: at a bound in bytes, and the log says so."""
    request = write_request(Kind.SOTW, CLUSTER, error="x" * 3_000_000)
    async with control_plane() as plane, bench(tmp_path, plane.address) as b, asyncio.timeout(60):
        call = b.client.open(Kind.SOTW)
        await plane.accept()

        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for _ in range(40):
                await call.send(request)
        await call.status()
        await b.counts.reach(ERROR)

    assert "control plane does not read" in caplog.text


@pytest.mark.parametrize(
    ("code", "details", "counted"),
    [
        (grpc.StatusCode.OK, "", CANCELLED),
        (grpc.StatusCode.CANCELLED, "bye", CANCELLED),
        (grpc.StatusCode.INTERNAL, "boom", ERROR),
        (grpc.StatusCode.UNAUTHENTICATED, "authentication failure", ERROR),
        # X5: Envoy's own back-off is what heeds it.
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "request rate limit exceeded", ERROR),
    ],
)
async def test_the_status_of_the_control_plane_reaches_envoy(
    code: grpc.StatusCode,
    details: str,
    counted: tuple[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """T-X16."""
    caplog.set_level(logging.INFO, "agent.xds")
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        call = b.client.open(Kind.DELTA)
        stream = await plane.accept()
        await stream.send(response(Kind.DELTA, CLUSTER))
        stream.end(code, details)

        assert read_response(await call.receive()).type_url == CLUSTER
        assert await call.status() == (code, details)
        await b.counts.reach(counted)

    ends = [record for record in caplog.records if "stream ended" in record.message]
    assert len(ends) == 1
    assert ends[0].levelno == (logging.WARNING if counted == ERROR else logging.INFO)


@pytest.mark.parametrize("last_words", [b"", GOAWAY_NO_ERROR])
async def test_a_connection_that_is_closed_in_good_order_is_expected(
    last_words: bytes, tmp_path: Path
) -> None:
    """T-X16, X2: a maximum connection age, or a link that is cut; the next stream works."""
    async with (
        control_plane() as plane,
        link(plane.port) as between,
        bench(tmp_path, between.address) as b,
    ):
        call = b.client.open(Kind.DELTA)
        await plane.accept()
        between.cut(last_words)

        assert (await call.status())[0] is grpc.StatusCode.UNAVAILABLE
        await b.counts.reach(CANCELLED)
        b.client.open(Kind.DELTA)
        await plane.accept()


@pytest.mark.slow
async def test_a_link_that_went_silent_is_noticed_by_keepalive(tmp_path: Path) -> None:
    """X2."""
    keepalive = KeepaliveSettings(interval_seconds=1, timeout_seconds=1)
    permissive = (("grpc.http2.min_ping_interval_without_data_ms", 100),)
    async with (
        control_plane(options=permissive) as plane,
        link(plane.port) as between,
        bench(tmp_path, between.address, keepalive=keepalive) as b,
    ):
        call = b.client.open(Kind.DELTA)
        await plane.accept()
        between.freeze()

        code, _ = await asyncio.wait_for(call.status(), 30)

    assert code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.slow
async def test_a_control_plane_that_does_not_answer_a_connection_is_given_up(
    tmp_path: Path,
) -> None:
    """D-1: five seconds instead of twenty."""
    async with control_plane() as plane, link(plane.port) as between:
        between.freeze()
        async with bench(tmp_path, between.address) as b:
            started = asyncio.get_running_loop().time()
            call = b.client.open(Kind.DELTA)

            code, _ = await asyncio.wait_for(call.status(), 15)

            assert code is grpc.StatusCode.UNAVAILABLE
            assert asyncio.get_running_loop().time() - started > 1
            assert b.relay.problem() is not None


async def test_envoy_is_watched_while_the_control_plane_is_dialled(tmp_path: Path) -> None:
    """D-1."""
    async with control_plane() as plane, link(plane.port) as between:
        between.freeze()
        async with bench(tmp_path, between.address) as b:
            call = b.client.open(Kind.DELTA)
            await call.send(write_request(Kind.DELTA, CLUSTER))
            await between.connected.wait()
            await call.half_close()

            assert await call.status() == (grpc.StatusCode.OK, "")
            await b.counts.reach(ENVOY_CANCELLED)


async def test_a_connection_is_begun_before_envoy_comes(tmp_path: Path) -> None:
    async with (
        control_plane() as plane,
        link(plane.port) as between,
        bench(tmp_path, between.address),
    ):
        await asyncio.wait_for(between.connected.wait(), 10)


async def test_what_is_no_discovery_message_ends_the_stream(tmp_path: Path) -> None:
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        call = b.client.open(Kind.DELTA)
        await call.send(b"\xff")
        from_envoy = await call.status()
        await plane.accept()
        call = b.client.open(Kind.DELTA)
        await (await plane.accept()).send(b"\xff")
        from_control_plane = await call.status()

    assert from_envoy[0] is from_control_plane[0] is grpc.StatusCode.INTERNAL
    assert from_envoy[1].startswith("message from Envoy cannot be read")
    assert from_control_plane[1].startswith("message from control plane cannot be read")


async def test_a_message_of_envoy_has_a_largest_size(tmp_path: Path) -> None:
    async with (
        control_plane() as plane,
        bench(tmp_path, plane.address, max_receive_bytes=1000) as b,
    ):
        call = b.client.open(Kind.DELTA)
        await call.send(write_request(Kind.DELTA, CLUSTER, error="x" * 2000))

        assert (await call.status())[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_push_has_none(tmp_path: Path) -> None:
    """Beyond gRPC's default of 4 MB in either direction, and large enough to be trimmed after."""
    push = response(Kind.DELTA, CLUSTER, b"x" * 6_000_000)
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        call = b.client.open(Kind.DELTA)
        stream = await plane.accept()
        await stream.send(push)

        assert await call.receive() == push


async def test_the_largest_request_is_kept_as_a_metric(tmp_path: Path) -> None:
    sizes = [write_request(Kind.DELTA, CLUSTER, error="x" * length) for length in (10, 50, 20)]
    async with control_plane() as plane, bench(tmp_path, plane.address) as b:
        call = b.client.open(Kind.DELTA)
        stream = await plane.accept()
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
