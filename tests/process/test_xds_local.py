"""A local control plane on the socket: built in, or from a directory that changes."""

import os
from pathlib import Path

import grpc
import pytest

from agent.errors import AgentError
from agent.xds.discovery import Kind, read_response, write_request
from agent.xds.resources import CLUSTER, LISTENER
from tests.fakes.local_bench import BETTER, GOOD, accept, local, served, subscribed


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    directory = tmp_path / "resources"
    directory.mkdir()
    return directory


@pytest.mark.parametrize("kind", Kind)
async def test_the_built_in_configuration_is_there_at_once(kind: Kind, tmp_path: Path) -> None:
    async with local(tmp_path, "builtin") as (client, noticed):
        call = await subscribed(client, kind)
        clusters = read_response(await call.receive())
        await call.send(write_request(kind, LISTENER))
        listeners = read_response(await call.receive())

        assert (clusters.type_url, clusters.resource_count) == (CLUSTER, 3)
        assert (listeners.type_url, listeners.resource_count) == (LISTENER, 2)
        await noticed.becomes(None)


async def test_a_refusal_is_a_problem_until_the_type_is_accepted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with local(tmp_path, "builtin") as (client, noticed):
        call = await subscribed(client)
        nonce = read_response(await call.receive()).nonce
        await call.send(write_request(Kind.SOTW, CLUSTER, nonce=nonce, error="no such thing"))
        await noticed.becomes("Envoy refused Cluster: no such thing")
        await call.send(write_request(Kind.SOTW, CLUSTER, nonce=nonce))
        await noticed.becomes(None)

    assert "no such thing" in caplog.text


async def test_what_is_no_discovery_message_ends_a_local_stream(tmp_path: Path) -> None:
    async with local(tmp_path, "builtin") as (client, _):
        call = client.open(Kind.SOTW)
        await call.send(b"\xff")

        assert (await call.status())[0] is grpc.StatusCode.INTERNAL


async def test_a_client_that_closes_its_side_is_let_go(tmp_path: Path) -> None:
    async with local(tmp_path, "builtin") as (client, _):
        call = await subscribed(client)
        await call.half_close()

        assert len(await call.rest()) <= 1
        assert (await call.status())[0] is grpc.StatusCode.OK


@pytest.mark.slow
@pytest.mark.parametrize("kind", Kind)
async def test_a_directory_is_served_and_its_changes_are_pushed(
    kind: Kind, tmp_path: Path, resources: Path
) -> None:
    (resources / "a.yaml").write_text(GOOD)
    (resources / "ignored.txt").write_text("not ours")
    (resources / ".hidden.yaml").write_text("not ours")
    async with local(tmp_path, str(resources)) as (client, _):
        call = await subscribed(client, kind)
        first = await call.receive()
        await accept(call, kind, first)
        (resources / "b.yaml").write_text(BETTER)
        second = await call.receive()

    assert b"one" in first
    assert b"two" in second
    assert read_response(second).resource_count == (2 if kind is Kind.SOTW else 1)


@pytest.mark.slow
async def test_a_broken_file_leaves_the_last_good_set_in_force(
    tmp_path: Path, resources: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (resources / "a.yaml").write_text(GOOD)
    async with local(tmp_path, str(resources)) as (client, noticed):
        await (await subscribed(client)).receive()
        (resources / "b.yaml").write_text("a: b: c")
        problem = await noticed.becomes("b.yaml:1")
        still = await (await subscribed(client)).receive()
        (resources / "b.yaml").write_text(BETTER)
        await noticed.becomes(None)
        mended = await (await subscribed(client)).receive()

    reason = f"{resources}/b.yaml:1: is not YAML: mapping values are not allowed here"
    assert problem == f"local resources: {reason}"
    assert read_response(still).resource_count == 1
    assert read_response(mended).resource_count == 2
    lines = [record.message for record in caplog.records if "not taken" in record.message]
    assert len(lines) == 1
    assert reason in lines[0]
    assert "stays in force" in lines[0]


@pytest.mark.slow
async def test_without_a_good_set_nothing_is_served_until_there_is_one(
    tmp_path: Path, resources: Path
) -> None:
    """X10: Envoy waits, and is not told that there is nothing."""
    async with local(tmp_path, str(resources)) as (client, noticed):
        await noticed.becomes("expected files named *.yaml, *.yml or *.json")
        call = await subscribed(client)
        (resources / "a.yaml").write_text("name: x\n")
        await noticed.becomes("expected a resource with '@type'")
        (resources / "a.yaml").write_text(GOOD)

        assert read_response(await call.receive()).resource_count == 1
        await noticed.becomes(None)


@pytest.mark.slow
async def test_a_config_map_is_followed(tmp_path: Path, resources: Path) -> None:
    """C5: its files are links through `..data`, which a rename points elsewhere."""

    def publish(version: str, text: str) -> None:
        (resources / version).mkdir()
        (resources / version / "a.yaml").write_text(text)
        (resources / "..data_tmp").symlink_to(version)
        (resources / "..data_tmp").rename(resources / "..data")

    publish("..1", GOOD)
    (resources / "a.yaml").symlink_to("..data/a.yaml")
    async with local(tmp_path, str(resources)) as (client, _):
        call = await subscribed(client)
        await served(call, b"one")
        for version, text, name in (("..2", BETTER, b"two"), ("..3", GOOD, b"one")):
            publish(version, text)
            await served(call, name)


@pytest.mark.slow
async def test_a_change_of_form_alone_is_not_pushed(tmp_path: Path, resources: Path) -> None:
    (resources / "a.yaml").write_text(GOOD)
    async with local(tmp_path, str(resources)) as (client, noticed):
        call = await subscribed(client)
        await accept(call, Kind.SOTW, await call.receive())
        (resources / "a.yaml").write_text(f"# remark\n{GOOD}")
        (resources / "b.yaml").write_text("broken: [")
        await noticed.becomes("b.yaml")
        (resources / "b.yaml").write_text(BETTER)

        assert read_response(await call.receive()).resource_count == 2


@pytest.mark.slow
async def test_a_directory_that_goes_away_leaves_the_last_good_set(
    tmp_path: Path, resources: Path
) -> None:
    (resources / "a.yaml").write_text(GOOD)
    async with local(tmp_path, str(resources)) as (client, noticed):
        await (await subscribed(client)).receive()
        (resources / "a.yaml").unlink()
        resources.rmdir()  # noqa: ASYNC240 - a local file
        await noticed.becomes("local resources")

        assert b"one" in await (await subscribed(client)).receive()


@pytest.mark.parametrize("what", ["nowhere", "file"])
async def test_what_is_no_directory_is_refused_on_entering(what: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = os.fspath(tmp_path / what)

    with pytest.raises(AgentError, match="expected 'builtin' or a directory of Envoy resources"):
        async with local(tmp_path, path):
            pass
