"""ECDS responses converted, with a process that fetches. Sections 3.1 to 3.3 and 3.9."""

import asyncio
import logging
from pathlib import Path

import pytest
from aiohttp import web
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.http.router.v3.router_pb2 import Router
from envoy.extensions.filters.http.wasm.v3.wasm_pb2 import Wasm as HttpWasm
from google.protobuf.any_pb2 import Any
from google.protobuf.empty_pb2 import Empty

from agent.protobuf.wire import message
from agent.wasm.cache import Want
from agent.xds.discovery import Kind, Resource, write_response
from agent.xds.resources import EXTENSION
from tests.fakes.modules import modules
from tests.fakes.registry import FakeRegistry, docker_config
from tests.fakes.wasm import (
    MODULE,
    Wasm,
    as_struct,
    configurations,
    ecds,
    http_wasm,
    local_wasm,
    wasm,
)
from tests.fakes.web import Pages, web_server
from tests.waiting import until

SECRET = "ISTIO_META_WASM_IMAGE_PULL_SECRET"  # noqa: S105 - a name


def pages() -> Pages:
    return Pages({"/a": web.Response(body=MODULE)})


def file_of(configuration: Wasm) -> Path:
    return Path(http_wasm(configuration).config.vm_config.code.local.filename)


def prefix_of(configuration: Wasm) -> str:
    """Return what replaces an extension without module."""
    rbac = rbac_pb2.RBAC()
    assert configuration.Unpack(rbac), configuration.type_url
    assert rbac.HasField("rules") is (rbac.rules_stat_prefix == "wasm-default-deny")
    return str(rbac.rules_stat_prefix)


@pytest.mark.parametrize("kind", Kind)
async def test_each_extension_gets_what_it_needs(tmp_path: Path, kind: Kind) -> None:
    """T-W14, X9, R-23: what fails for one is nothing to the others."""
    async with web_server(pages()) as port, modules(tmp_path) as bench:
        url = f"http://127.0.0.1:{port}/a"
        no_address = wasm()
        no_address.config.vm_config.code.remote.ClearField("http_uri")
        sent = {
            "remote": wasm(url, environment={"ISTIO_META_X": "y"}),
            "json": as_struct(wasm(url)),
            "closed": wasm(f"{url}/none"),
            "open": wasm(f"{url}/none", fail_open=True),
            "no address": no_address,
            "local": local_wasm(),
            "local json": as_struct(local_wasm()),
            "router": Router(),
        }

        answer = await bench.convert(kind, ecds(kind, sent))

        found = configurations(kind, answer)
        assert list(found) == list(sent)
        assert file_of(found["remote"]).read_bytes() == MODULE
        assert not http_wasm(found["remote"]).config.vm_config.HasField("environment_variables")
        assert file_of(found["json"]) == file_of(found["remote"])
        assert prefix_of(found["closed"]) == "wasm-default-deny"
        assert prefix_of(found["open"]) == "wasm-default-allow"
        assert prefix_of(found["no address"]) == "wasm-default-deny"
        for name in ("local", "local json", "router"):
            unchanged = Any()
            unchanged.Pack(sent[name])
            assert found[name] == unchanged
        counts = {
            "success": 2,
            "fetch_failure": 2,
            "miss_remote_fetch_hint": 1,
            "no_remote_load": 3,
        }
        for result, count in counts.items():
            assert bench.metric("config_conversion_count", result=result) == count
        assert bench.metric("config_conversion_duration_count") == 1


@pytest.mark.parametrize("kind", Kind)
async def test_a_response_without_modules_is_the_same(tmp_path: Path, kind: Kind) -> None:
    raw = ecds(kind, {"local": local_wasm(), "router": Router()})
    async with modules(tmp_path) as bench:
        assert await bench.convert(kind, raw) is raw
        assert bench.fetching.pid is None


def of_type(kind: Kind, message: Wasm) -> bytes:
    """Return a response with a resource of another type."""
    resource = Resource(f"type.googleapis.com/{message.DESCRIPTOR.full_name}", "x", "1", b"")
    return write_response(kind, EXTENSION, version="1", nonce="n", resources=[resource])


@pytest.mark.parametrize("kind", Kind)
async def test_one_that_is_none_refuses_the_whole_response(tmp_path: Path, kind: Kind) -> None:
    """T-W15, and all that is wrong is said."""
    async with web_server(pages()) as port, modules(tmp_path) as bench:
        good = wasm(f"http://127.0.0.1:{port}/a")

        with pytest.raises(ValueError, match="expected a resource of") as wrong_type:
            await bench.convert(kind, of_type(kind, Empty()))
        sent = {"a": good, "b": HttpWasm(), "c": as_struct(good, unknown=1)}
        with pytest.raises(ValueError, match="is neither remote nor local") as several:
            await bench.convert(kind, ecds(kind, sent))

        assert "google.protobuf.Empty" in str(wrong_type.value)
        assert "extension 'c': JSON of " in str(several.value)
        assert "no field named 'unknown'" in str(several.value)
        assert bench.metric("config_conversion_count", result="unmarshal_failure") == 3


async def test_a_secret_is_used_and_seen_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """T-W14, R-3, R-29."""
    caplog.set_level(logging.DEBUG)
    registry = FakeRegistry(user=("user", "hidden"))
    registry.push_docker("v1")
    async with web_server(registry) as port, modules(tmp_path) as bench:
        url = f"oci://127.0.0.1:{port}/owner/image:v1"
        secret = docker_config(f"127.0.0.1:{port}", "user", "hidden")
        with_secret, bad = (wasm(url, environment={SECRET: text}) for text in (secret, "hidden"))
        raw = ecds(Kind.DELTA, {"a": with_secret, "b": as_struct(with_secret), "c": bad})

        answer = await bench.convert(Kind.DELTA, raw)

        found = configurations(Kind.DELTA, answer)
        assert file_of(found["a"]) == file_of(found["b"])
        assert prefix_of(found["c"]) == "wasm-default-deny"
        encoded = docker_config("", "user", "hidden").partition('"auth": ')[2].strip('"}')
        assert b"ISTIO_META" not in answer
        assert encoded.encode() not in answer
        shown = caplog.text + bench.metrics.render()
        assert "hidden" not in shown
        assert encoded not in shown
        assert "pull secret: expected a docker config in JSON" in shown


async def test_json_is_converted_once(tmp_path: Path) -> None:
    raw = ecds(Kind.DELTA, {"a": as_struct(local_wasm())})
    async with modules(tmp_path) as bench:
        first = await bench.convert(Kind.DELTA, raw)
        assert bench.fetching.pid
        await until(lambda: bench.fetching.pid is None)

        assert await bench.convert(Kind.DELTA, raw) == first
        assert bench.fetching.pid is None


async def test_responses_come_in_the_order_in_which_they_were_sent(tmp_path: Path) -> None:
    """D-26: what is in use afterwards is what the later one says."""
    go_on = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        if request.path == "/slow":
            await go_on.wait()
        return web.Response(body=MODULE + request.path.encode())

    async with web_server(answer) as port, modules(tmp_path) as bench:
        done: list[str] = []

        async def convert(name: str) -> Path:
            raw = ecds(Kind.DELTA, {"a": wasm(f"http://127.0.0.1:{port}/{name}")})
            converted = await bench.convert(Kind.DELTA, raw)
            done.append(name)
            return file_of(configurations(Kind.DELTA, converted)["a"])

        async with asyncio.TaskGroup() as group:
            slow = group.create_task(convert("slow"))
            await asyncio.sleep(0)
            fast = group.create_task(convert("fast"))
            await until(lambda: bench.metric("cache_entries"))  # of the fast one
            assert done == []
            go_on.set()

        assert done == ["slow", "fast"]
        assert slow.result() != fast.result()


async def test_a_new_configuration_of_a_module_that_is_there_fetches_nothing(
    tmp_path: Path,
) -> None:
    served = pages()
    async with web_server(served) as port, modules(tmp_path) as bench:

        async def convert(root_id: str) -> Wasm:
            plugin = wasm(f"http://127.0.0.1:{port}/a", root_id=root_id)
            answer = await bench.convert(Kind.SOTW, ecds(Kind.SOTW, {"a": plugin}))
            return configurations(Kind.SOTW, answer)["a"]

        before, after = [await convert(each) for each in ("one", "two")]

    assert http_wasm(after).config.root_id == "two"
    assert file_of(after) == file_of(before)
    assert len(served.requests) == 1


@pytest.mark.parametrize("keep", [True, False])
async def test_a_module_that_was_there_may_be_kept(tmp_path: Path, *, keep: bool) -> None:
    """X9."""
    async with web_server(pages()) as port, modules(tmp_path, keep_last=keep) as bench:

        async def convert(path: str, *removed: str) -> Wasm:
            sent = {"a": wasm(f"http://127.0.0.1:{port}/{path}")}
            raw = ecds(Kind.DELTA, {} if removed else sent, removed=removed)
            return configurations(Kind.DELTA, await bench.convert(Kind.DELTA, raw)).get("a")

        good = await convert("a")
        bad = await convert("none")
        await convert("", "a")
        new = await convert("none")
        file_of(await convert("a")).unlink()
        lost = await convert("none")

    assert (bad == good) is keep
    assert keep or prefix_of(bad) == "wasm-default-deny"
    assert prefix_of(new) == prefix_of(lost) == "wasm-default-deny"


async def test_a_sign_of_life_changes_nothing(tmp_path: Path) -> None:
    """Of an extension with a time to live: its module stays in use."""
    alive = message((2, message((3, "a"), (6, message((1, 60))))), (4, EXTENSION), (5, "n"))
    periods = {"expiry_seconds": 0.001, "purge_seconds": 0.001}
    async with web_server(pages()) as port, modules(tmp_path, **periods) as bench:
        url = f"http://127.0.0.1:{port}/a"
        raw = await bench.convert(Kind.DELTA, ecds(Kind.DELTA, {"a": wasm(url)}))
        path = file_of(configurations(Kind.DELTA, raw)["a"])

        same = await bench.convert(Kind.DELTA, alive)
        other = Want("b", f"{url}?b")
        gone = await bench.path(other)
        await until(lambda: not gone.exists())

        assert same is alive
        assert path.exists()


async def test_a_module_stays_until_no_extension_has_it(tmp_path: Path) -> None:
    """Also while others of its response are fetched, however soon modules expire."""
    periods = {"expiry_seconds": 0.001, "purge_seconds": 0.001}
    served = pages()

    async def late(_request: web.BaseRequest) -> web.Response:
        await until(lambda: bench.metric("cache_entries") == 1)
        await bench.path(Want("x", f"{url}?x"))  # takes longer than a module may be unused
        return web.Response(body=MODULE)

    served.pages["/late"] = late
    async with web_server(served) as port, modules(tmp_path, **periods) as bench:
        url = f"http://127.0.0.1:{port}/a"
        sent = {"a": wasm(url), "late": wasm(f"http://127.0.0.1:{port}/late")}
        answer = await bench.convert(Kind.DELTA, ecds(Kind.DELTA, sent))
        a, other = map(file_of, configurations(Kind.DELTA, answer).values())
        assert a.exists()

        await bench.convert(Kind.DELTA, ecds(Kind.DELTA, {}, removed=("a",)))
        await until(lambda: not a.exists())

        assert other.exists()
