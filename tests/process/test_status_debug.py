"""What the agent says of itself to whoever debugs it, over real sockets."""

import asyncio
import json

import pytest

from tests.fakes.status import Agent, content_types, status_server

PATHS = ("config", "tasks", "memory", "logging", "certs", "drain", "ndsz", "syncz")


@pytest.mark.parametrize("name", PATHS)
async def test_all_of_it_is_for_this_pod_alone(name: str) -> None:
    agent = Agent()
    agent.documents |= {name: lambda: {"name": name}}
    async with status_server(agent=agent) as status:
        refused = await status.ask(f"/debug/{name}", source="127.0.0.6")
        shown = await status.ask(f"/debug/{name}")

    assert refused.status == 403
    assert shown.status == 200
    assert shown.header("content-type") == "application/json"


@pytest.mark.parametrize("path", ["/debug", "/debug/"])
async def test_an_index_names_what_there_is(path: str) -> None:
    async with status_server(profiling=False) as status:
        refused = await status.ask(path, source="127.0.0.6")
        shown = await status.ask(path)

    assert (refused.status, shown.status) == (403, 200)
    assert content_types(shown) == ("text/plain; charset=utf-8", "nosniff")
    assert b"\n/debug/config       the settings in force\n" in shown.body
    assert b"pprof" not in shown.body


async def inner(begun: asyncio.Event) -> None:
    begun.set()
    await asyncio.Event().wait()


async def outer(begun: asyncio.Event) -> None:
    await inner(begun)


async def test_tasks_are_shown_down_to_where_they_wait() -> None:
    begun = asyncio.Event()
    async with status_server() as status, asyncio.TaskGroup() as group:
        task = group.create_task(outer(begun), name="waits-for-ever")
        await begun.wait()
        shown = json.loads((await status.ask("/debug/tasks")).body)
        task.cancel()

    (found,) = (each for each in shown["tasks"] if each["name"] == "waits-for-ever")
    assert shown["count"] == len(shown["tasks"]) >= 2
    assert found["coroutine"] == "outer"
    assert [line.rpartition(" in ")[2] for line in found["stack"]] == [
        "outer",
        "inner",
        "Event.wait",
    ]
    assert found["stack"][0].startswith("tests/process/test_status_debug.py:")


async def test_memory_is_shown_by_size_and_by_type() -> None:
    async with status_server() as status:
        shown = json.loads((await status.ask("/debug/memory")).body)

    assert shown["peak_resident_bytes"] >= shown["resident_bytes"] > shown["anonymous_bytes"] > 0
    assert shown["proportional_bytes"] <= shown["resident_bytes"]
    assert shown["swapped_bytes"] >= 0
    most = list(shown["objects"]["most"].values())
    assert most == sorted(most, reverse=True)
    assert shown["objects"]["tracked"] >= sum(most)
    assert "function" in shown["objects"]["most"]
    assert len(shown["collections"]) == 3
    assert min(shown["modules"], shown["threads"], shown["open_files"]) >= 1


async def test_log_levels_are_set_for_a_while() -> None:
    agent = Agent()
    async with status_server(agent=agent) as status:
        usual = await status.ask("/debug/logging?level=debug", method="POST")
        longer = await status.ask("/debug/logging?level=dns:debug,cache:warn&for=1h", method="POST")

    assert (usual.status, usual.body, longer.status) == (200, b"OK", 200)
    assert agent.calls == ["levels debug 600", "levels dns:debug,cache:warn 3600"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", b"expected level=[SCOPE:]LEVEL,... such as level=xdsproxy:debug&for=5m\n"),
        ("level=loud", b"level 'loud': expected one of debug, info\n"),
        ("level=debug&for=ever", b"for='ever': expected a duration"),
    ],
)
async def test_what_is_no_change_of_levels_is_refused(query: str, reason: bytes) -> None:
    async with status_server() as status:
        response = await status.ask(f"/debug/logging?{query}", method="POST")

    assert response.status == 400
    assert response.body.startswith(reason)


async def test_log_levels_are_only_set_by_this_pod_and_by_post() -> None:
    agent = Agent()
    async with status_server(agent=agent) as status:
        beyond = await status.ask("/debug/logging?level=debug", method="POST", source="127.0.0.6")
        put = await status.ask("/debug/logging?level=debug", method="PUT")

    assert (beyond.status, put.status, put.header("allow")) == (403, 405, "GET, HEAD, POST")
    assert agent.calls == []
