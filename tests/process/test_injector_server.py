"""The webhook's HTTP side. Source: status-lifecycle.md sections 11.1 and 13.7."""

import asyncio
import json
import random
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple, cast

import pytest

from agent.errors import SystemRefusedError
from agent.inject.configuration import Configuration
from agent.inject.template.pod import Settings
from agent.inject.webhook.review import Context
from agent.inject.webhook.server import (
    LIMIT_BYTES,
    listening,
    make_metrics,
    monitoring_application,
    webhook_application,
)
from agent.metrics import Metrics
from tests.fakes.injection import make_pod, make_settings
from tests.fakes.injector import Client, client, make_review


class Service(NamedTuple):
    context: Context = Context(Configuration(), make_settings(), native="true")
    is_ready: bool = True


@asynccontextmanager
async def webhook(
    service: Service | None = None, metrics: Metrics | None = None
) -> AsyncIterator[Client]:
    application = webhook_application(service or Service(), metrics or make_metrics())
    async with (
        listening(application, "localhost", 0) as (port, _),
        client(port) as found,
    ):
        yield found


@pytest.mark.parametrize("path", ["/inject", "/inject/", "/inject/cluster/a/net/b/"])
async def test_reviews_are_answered_below_inject(path: str) -> None:
    async with webhook() as server:
        response = await server.review(make_pod(), path)

    assert response["allowed"]
    assert response["patchType"] == "JSONPatch"


async def test_what_is_no_review_has_its_status() -> None:
    async with webhook() as server:
        assert await server.post("") == (400, "no body found\n")
        assert await server.post("{}", content_type="text/plain") == (
            415,
            "invalid Content-Type, want `application/json`\n",
        )
        assert (await server.post("{}", content_type="application/json; charset=utf-8"))[0] == 415
        status, answer = await server.post(b"\x00\xff")
        assert status == 200
        assert answer["response"]["allowed"] is False
        assert set(answer) == {"response"}
        assert (await server.get("/inject"))[0] == 405
        assert (await server.get("/other"))[0] == 404


async def test_a_body_has_a_limit() -> None:
    async with webhook() as server:
        pod = make_pod(annotations={"big": "x" * (LIMIT_BYTES - 2000)})
        assert (await server.review(pod))["allowed"]

        assert await server.post(b"x" * (LIMIT_BYTES + 1)) == (
            400,
            "expected a body of at most 6 MiB\n",
        )


async def test_a_packed_body_has_the_same_limit() -> None:
    packed = zlib.compress(b"x" * (LIMIT_BYTES * 2))
    async with webhook() as server:
        headers = {"Content-Type": "application/json", "Content-Encoding": "deflate"}
        async with server.session.post(
            f"{server.address}/inject", data=packed, headers=headers
        ) as reply:
            assert reply.status == 400


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"POST /inject HTTP/1.1\r\nContent-Length: x\r\n\r\n", "Content-Length"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 9000 + b"\r\n\r\n", "8190 bytes"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: br\r\n\r\n", "brotli"),
    ],
)
async def test_what_is_no_http_is_one_line(
    head: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with webhook() as server:
        reader, writer = await asyncio.open_connection(
            "localhost", server.address.rpartition(":")[2]
        )
        writer.write(head)
        status = await reader.readline()
        writer.close()
        await writer.wait_closed()

    assert b" 400 " in status
    (record,) = caplog.records
    assert record.getMessage().startswith("refused a request reason=")
    assert reason in record.getMessage()
    assert not record.exc_info


async def test_a_broken_off_body_costs_nothing() -> None:
    async with webhook() as server:
        for _ in range(20):
            _, writer = await asyncio.open_connection(
                "localhost", server.address.rpartition(":")[2]
            )
            writer.write(
                b"POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: 100\r\n\r\n{"
            )
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        assert (await server.review(make_pod()))["allowed"]


async def test_large_and_small_reviews_go_on_beside_each_other() -> None:
    containers = [{"name": f"c{number}", "image": "x" * 2000} for number in range(100)]
    async with webhook() as server:
        answers = await asyncio.gather(
            *(server.review(make_pod(*containers)) for _ in range(5)),
            *(server.review(make_pod()) for _ in range(20)),
        )

    assert all(answer["allowed"] for answer in answers)


def mutations(count: int) -> list[bytes]:
    """Return malformed reviews: bytes lost, doubled and changed, values of other kinds."""
    chance = random.Random(7)  # noqa: S311 - the same each time
    good = json.dumps(make_review(make_pod({"name": "a", "readinessProbe": {"httpGet": {}}})))
    found = []
    for _ in range(count):
        data = bytearray(good.encode())
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            match chance.randrange(4):
                case 0:
                    del data[at : at + chance.randint(1, 30)]
                case 1:
                    data[at:at] = data[at : at + chance.randint(1, 30)]
                case 2:
                    data[at] = chance.randrange(256)
                case _:
                    data[at:at] = chance.choice([b"null", b"[", b"{", b'"', b"\\", b"1e999", b"-"])
            data = data or bytearray(b"{")
        found.append(bytes(data))
    return found


@pytest.mark.slow
async def test_two_thousand_malformed_reviews_are_each_answered() -> None:
    bodies = mutations(2000)
    async with webhook() as server:

        async def ask(body: bytes) -> None:
            status, answer = await server.post(body)
            assert status == 200
            if not answer["response"]["allowed"]:
                assert answer["response"]["status"]["message"]

        for start in range(0, len(bodies), 50):
            await asyncio.gather(*map(ask, bodies[start : start + 50]))
        assert (await server.review(make_pod()))["allowed"]


async def test_a_bug_of_ours_refuses_the_pod_and_not_the_next_one() -> None:
    broken = Service(Context(Configuration(), cast("Settings", None)))
    async with webhook(broken) as server:
        for _ in range(2):
            status, answer = await server.post(json.dumps(make_review(make_pod())))

            assert status == 200
            assert answer["response"]["status"]["message"] == (
                "the injector has failed; its log says where"
            )


async def test_reviews_are_counted() -> None:
    metrics = make_metrics()
    async with webhook(metrics=metrics) as server:
        await server.review(make_pod())
        await server.review(make_pod(hostNetwork=True))
        await server.review(5)
        await server.post("")
        status, page = await server.get("/metrics")

    lines = page.splitlines()
    assert status == 200
    assert "sidecar_injection_requests_total 4" in lines
    assert "sidecar_injection_success_total 3" in lines
    assert "sidecar_injection_skip_total 1" in lines
    assert "sidecar_injection_failure_total 2" in lines
    assert "sidecar_injection_time_seconds_count 4" in lines
    assert 'sidecar_injection_time_seconds_bucket{le="0.1"} 4' in lines


async def test_health_is_told_with_and_without_tls() -> None:
    service = Service(is_ready=False)
    application = monitoring_application(service, make_metrics())
    async with (
        webhook(service) as server,
        listening(application, "localhost", 0) as (port, _),
        client(port) as plain,
    ):
        for found in (server, plain):
            assert await found.get("/healthz") == (200, "")
            assert await found.get("/ready") == (503, "the injector is ending\n")
            assert (await found.get("/metrics"))[0] == 200
        assert (await plain.post("{}"))[0] == 404


async def test_a_port_that_is_taken_is_named() -> None:
    application = monitoring_application(Service(), make_metrics())
    async with listening(application, "127.0.0.1", 0) as (port, _):
        second = monitoring_application(Service(), make_metrics())
        with pytest.raises(SystemRefusedError, match=rf"cannot listen on 127.0.0.1:{port}: "):
            async with listening(second, "127.0.0.1", port):
                pass
