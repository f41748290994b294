"""What the injector learns of its cluster. Source: status-lifecycle.md sections 11.3 and 11.5."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agent.inject.cluster.client import ApiServer, ClusterError, api_server_address
from agent.inject.cluster.run import Contents, Follower

Object = dict[str, Any]
NODES = "/api/v1/nodes"


def node(name: str, kubelet: str, version: str = "1") -> Object:
    return {
        "metadata": {"name": name, "resourceVersion": version},
        "status": {"nodeInfo": {"kubeletVersion": kubelet}},
    }


class FakeApi:
    """Answers lists from `objects` and `status`; a watch gets what is put into its queue."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Object]] = {}
        self.status: dict[str, int] = {}
        self.watches: asyncio.Queue[tuple[str, asyncio.Queue[bytes | None]]] = asyncio.Queue()
        self.queries: list[Object] = []
        self.tokens: set[str] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.tokens.add(request.headers["Authorization"])
        self.queries.append({"path": request.path, **request.query})
        if "watch" in request.query:
            return await self._watch(request)
        if status := self.status.get(request.path):
            return web.Response(status=status)
        items = self.objects.get(request.path, [])
        first = int(request.query.get("continue", "0"))
        more = {"continue": str(first + 1)} if first + 1 < len(items) else {}
        return web.json_response(
            {"items": items[first : first + 1], "metadata": {"resourceVersion": "10", **more}}
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        await self.watches.put((request.path, queue))
        while data := await queue.get():
            await response.write(data)
        return response

    async def watch_of(self, path: str) -> asyncio.Queue[bytes | None]:
        """Return the next watch of a path."""
        while True:
            found, queue = await self.watches.get()
            if found == path:
                return queue


def event(kind: str, item: Object) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


class Known:
    """What a follower has told."""

    def __init__(self) -> None:
        self.contents: dict[str, dict[str, Any]] = {}
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, contents: Contents) -> None:
        self.contents = {name: dict(items) for name, items in contents.items()}
        task = asyncio.create_task(self._notify())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, name: str, expected: Object | None) -> None:
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: self.contents.get(name) == expected)


@asynccontextmanager
async def fake_api(directory: Path) -> AsyncIterator[tuple[FakeApi, ApiServer]]:
    (directory / "token").write_text("t-1\n")
    api = FakeApi()
    application = web.Application()
    application.router.add_get("/{rest:.*}", api.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "localhost", 0)
    await site.start()
    try:
        yield api, ApiServer(f"http://localhost:{site.port}", str(directory))
    finally:
        await runner.cleanup()


@asynccontextmanager
async def following(api: ApiServer) -> AsyncIterator[tuple[Follower, Known]]:
    known = Known()
    follower = Follower(api, known.take)
    task = asyncio.create_task(follower.run())
    try:
        async with asyncio.timeout(10):
            await follower.settled.wait()
        yield follower, known
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_lists_are_read_page_by_page_with_the_token_of_the_moment(tmp_path: Path) -> None:
    async with fake_api(tmp_path) as (api, server):
        api.objects[NODES] = [node("a", "v1.33.0"), node("b", "v1.34.0")]

        items, version = await server.list(NODES)
        (tmp_path / "token").write_text("t-2")
        await server.list(NODES)

    assert [item["metadata"]["name"] for item in items] == ["a", "b"]
    assert version == "10"
    assert api.tokens == {"Bearer t-1", "Bearer t-2"}


async def test_changes_are_followed(tmp_path: Path) -> None:
    async with fake_api(tmp_path) as (api, server):
        api.objects[NODES] = [node("a", "v1.32.0")]
        async with following(server) as (_, known):
            await known.until("nodes", {"a": "v1.32.0"})
            watch = await api.watch_of(NODES)
            whole = event("ADDED", node("b", "v1.33.0", "11"))

            await watch.put(whole[:20])
            await watch.put(whole[20:] + event("MODIFIED", node("a", "v1.33.0", "12")))
            await known.until("nodes", {"a": "v1.33.0", "b": "v1.33.0"})
            await watch.put(event("DELETED", node("a", "v1.33.0", "13")))
            await known.until("nodes", {"b": "v1.33.0"})


async def test_a_watch_that_ends_goes_on_from_where_it_was(tmp_path: Path) -> None:
    async with fake_api(tmp_path) as (api, server), following(server):
        watch = await api.watch_of(NODES)
        await watch.put(event("BOOKMARK", {"metadata": {"resourceVersion": "77"}}))
        await watch.put(None)
        await api.watch_of(NODES)

    versions = [query["resourceVersion"] for query in api.queries if "watch" in query]
    assert "77" in versions


async def test_a_watch_that_is_too_old_begins_with_a_list(tmp_path: Path) -> None:
    async with fake_api(tmp_path) as (api, server), following(server) as (_, known):
        watch = await api.watch_of(NODES)
        api.objects[NODES] = [node("new", "v1.34.0")]

        await watch.put(event("ERROR", {"kind": "Status", "code": 410}))

        await known.until("nodes", {"new": "v1.34.0"})


async def test_what_may_not_be_read_is_unknown_and_holds_nothing_up(tmp_path: Path) -> None:
    async with fake_api(tmp_path) as (api, server):
        api.status = {NODES: 403, "/apis/networking.istio.io/v1beta1/proxyconfigs": 404}
        async with following(server) as (_, known):
            await known.until("nodes", None)
            await known.until("namespaces", {})
            assert "proxyconfigs" not in known.contents


@pytest.mark.slow
async def test_nonsense_in_a_watch_is_answered_by_another_list(tmp_path: Path) -> None:
    async with fake_api(tmp_path) as (api, server), following(server) as (_, known):
        watch = await api.watch_of(NODES)
        api.objects[NODES] = [node("a", "v1.34.0")]

        await watch.put(b"nonsense\n")

        await known.until("nodes", {"a": "v1.34.0"})


async def test_other_collections_are_kept_as_far_as_they_matter(tmp_path: Path) -> None:
    scc = {"openshift.io/sa.scc.uid-range": "1/2"}
    namespaces: list[Object] = [
        {"metadata": {"name": "prod", "annotations": copy.deepcopy(scc)}},
        {"metadata": {"name": "other"}},
    ]
    resource = {"metadata": {"name": "c", "namespace": "prod"}, "spec": {"concurrency": 3}}
    async with fake_api(tmp_path) as (api, server):
        api.objects["/api/v1/namespaces"] = namespaces
        api.objects["/apis/networking.istio.io/v1beta1/proxyconfigs"] = [resource]
        async with following(server) as (_, known):
            await known.until("namespaces", {"prod": scc})
            (found,) = known.contents["proxyconfigs"].values()

    assert found.overlay == {"concurrency": 3}


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    with pytest.raises(ClusterError, match="/api/v1/nodes: "):
        await ApiServer("http://localhost:1", str(tmp_path)).list(NODES)
    with pytest.raises(ClusterError, match="no such file"):
        await ApiServer("http://localhost:1", str(tmp_path / "gone")).list(NODES)


def test_a_pod_finds_the_api_server_by_its_environment() -> None:
    assert api_server_address({}) == ""
    assert api_server_address({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == "https://10.0.0.1:443"
    assert (
        api_server_address(
            {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
        )
        == "https://[fd00::1]:6443"
    )
