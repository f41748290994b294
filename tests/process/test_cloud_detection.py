"""The child that finds the cloud, against a metadata service."""

import asyncio
import os
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from agent.cloud.client import detect
from agent.cloud.platforms import Found
from agent.cloud.process import Detection
from agent.cloud.settings import CloudSettings
from tests.fakes.control_plane import Authority
from tests.fakes.web import Answer, Pages, web_server
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


TOKEN = f"{GCP}instance/service-accounts/default/token"
INSTANCE = "/compute/v1/projects/shop/zones/europe-west1-b/instances/vm-1"
MACHINE = {
    **PAGES,
    f"{GCP}instance/name": web.Response(text="vm-1"),
    TOKEN: web.Response(text='{"access_token": "secret"}'),
}
LABELLED = Pages({INSTANCE: web.Response(text='{"labels": {"app": "web"}}')})


@asynccontextmanager
async def compute_api(directory: Path, pages: Answer) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """Yield host and port of an HTTPS server, and an environment that trusts it."""
    authority = Authority()
    pair = authority.issue("localhost")
    for name, content in (("root", authority.root), ("chain", pair.certificate), ("key", pair.key)):
        (directory / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "chain", directory / "key")
    async with web_server(pages, tls=context) as port:
        trusting = {**os.environ, "SSL_CERT_FILE": str(directory / "root"), "no_proxy": "*"}
        yield f"localhost:{port}", trusting


async def whole_answer(detection: Detection) -> Found | None:
    """Return what was found when the child has said all."""
    await until(detection.read)
    return detection.finish()


async def test_a_machine_of_google_has_labels(tmp_path: Path) -> None:
    async with (
        web_server(Pages(dict(MACHINE))) as port,
        compute_api(tmp_path, LABELLED) as (host, environ),
    ):
        settings = CloudSettings(("gcp",), f"127.0.0.1:{port}", gcp_compute_host=host)
        found = await whole_answer(Detection(settings, environ))

    assert found
    assert found.labels == {"app": "web"}
    assert found.locality["zone"] == "europe-west1-b"
    (request,) = LABELLED.requests
    assert request.headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("pages", "compute"),
    [
        ({**MACHINE, TOKEN: web.Response(status=404)}, "localhost:1"),
        (MACHINE, "localhost:1"),
        (MACHINE, "localhost:x"),
    ],
    ids=["no service account", "nobody answers", "no host"],
)
async def test_without_labels_the_rest_stays(pages: dict[str, web.Response], compute: str) -> None:
    async with web_server(Pages(dict(pages))) as port:
        settings = CloudSettings(("gcp",), f"127.0.0.1:{port}", gcp_compute_host=compute)
        found = await whole_answer(Detection(settings, {**os.environ, "no_proxy": "*"}))

    assert found
    assert (found.metadata["gcp_gce_instance"], found.labels) == ("vm-1", {})


async def test_labels_that_take_their_time_are_done_without(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def never(_: web.BaseRequest) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with (
        web_server(Pages(dict(MACHINE))) as port,
        compute_api(tmp_path, never) as (host, environ),
    ):
        settings = CloudSettings(("gcp",), f"127.0.0.1:{port}", gcp_compute_host=host)
        detection = Detection(settings, environ)
        await asked.wait()
        (child,) = children()

        found = detection.finish()

        await until(lambda: is_reaped(child))
    assert found
    assert (found.metadata["gcp_gce_instance"], found.labels) == ("vm-1", {})


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
