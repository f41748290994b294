"""The child that finds the cloud, against a metadata service."""

import asyncio
import os
import signal

import pytest
from aiohttp import web

from agent.cloud.client import detect
from agent.cloud.platforms import Found
from agent.cloud.process import Detection
from agent.cloud.settings import CloudSettings
from tests.fakes.web import Pages, web_server
from tests.waiting import until

GCP = "/computeMetadata/v1/"
PAGES = {
    f"{GCP}project/project-id": web.Response(text="shop"),
    f"{GCP}instance/zone": web.Response(text="projects/17/zones/europe-west1-b"),
}
SHOP = Found(
    {"gcp_project": "shop", "gcp_location": "europe-west1-b"},
    {"region": "europe-west1", "zone": "europe-west1-b"},
)


async def test_a_metadata_service_is_asked_as_it_wants_to_be() -> None:
    pages = Pages(dict(PAGES))
    async with web_server(pages) as port:
        found = await asyncio.to_thread(detect, [("gcp", f"127.0.0.1:{port}")])

    assert found == SHOP
    assert {request.headers["Metadata-Flavor"] for request in pages.requests} == {"Google"}


async def test_the_first_cloud_to_know_the_machine_is_it() -> None:
    pages = Pages(dict(PAGES))
    async with web_server(pages) as port:
        host = f"127.0.0.1:{port}"
        clouds = [("aws", host), ("azure", host), ("gcp", host)]
        found = await asyncio.to_thread(detect, clouds)

    assert found == SHOP


@pytest.mark.parametrize(
    "host", ["127.0.0.1:1", "127.0.0.1:x", "127.0.0.1:99999", "[::1]:1", "::1"]
)
def test_nobody_may_answer(host: str) -> None:
    assert detect([("gcp", host), ("aws", host), ("azure", host)]) is None


async def finished() -> None:
    """Return once the child has ended; it is left to be reaped."""
    (child,) = children()
    await until(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT))


def is_reaped(child: int) -> bool:
    """Reap a child that has been killed, unless it is gone already."""
    try:
        return os.waitpid(child, os.WNOHANG) == (child, signal.SIGKILL)
    except ChildProcessError:
        return True


def children() -> list[int]:
    pid = os.getpid()
    with open(f"/proc/{pid}/task/{pid}/children") as file:  # noqa: PTH123 - one line
        return [int(child) for child in file.read().split()]


async def test_what_was_found_in_time_is_returned() -> None:
    async with web_server(Pages(dict(PAGES))) as port:
        settings = CloudSettings(platforms=("gcp",), gcp_host=f"127.0.0.1:{port}")
        detection = Detection(settings, os.environ)
        await finished()

        assert detection.finish() == SHOP

    assert detection.finish() is None
    assert children() == []


async def test_a_search_that_goes_on_is_ended() -> None:
    asked = asyncio.Event()

    async def never(_: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with web_server(never) as port:
        settings = CloudSettings(platforms=("gcp",), gcp_host=f"127.0.0.1:{port}")
        detection = Detection(settings, os.environ)
        await asked.wait()
        (child,) = children()

        assert detection.finish() is None

        await until(lambda: is_reaped(child))


def test_where_there_is_nobody_to_ask_no_process_is_started() -> None:
    detection = Detection(CloudSettings(), os.environ)

    assert children() == []
    assert detection.finish() is None
