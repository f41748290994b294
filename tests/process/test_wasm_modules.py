"""Modules on disk: found there or fetched by a process. Section 3.4, D-17, T-W1 to T-W6."""

import asyncio
import hashlib
import os
import signal
from pathlib import Path

import pytest
from aiohttp import web

from agent.wasm.cache import Key, Policy, PullSecret, Want, directory_of
from agent.wasm.convert import Failure
from agent.wasm.order import FetchOrder, Refused, StructOrder
from agent.wasm.process import Fetching
from agent.wasm.settings import FetchSettings
from tests.fakes.control_plane import Authority
from tests.fakes.modules import modules
from tests.fakes.registry import FakeRegistry, docker_config
from tests.fakes.wasm import MODULE
from tests.fakes.web import Pages, tls_context, web_server
from tests.waiting import until

CHECKSUM = hashlib.sha256(MODULE).hexdigest()


def pages() -> Pages:
    return Pages({"/a": web.Response(body=MODULE), "/b": web.Response(body=MODULE + b"b")})


async def test_a_module_is_fetched_once(tmp_path: Path) -> None:
    """T-W1."""
    served = pages()
    async with web_server(served) as port, modules(tmp_path) as bench:
        want = Want("a", f"http://127.0.0.1:{port}/a")
        first = await bench.path(want)
        again = await bench.path(want)
        by_checksum = await bench.path(want._replace(resource="b", checksum=CHECKSUM))

        assert first.read_bytes() == MODULE
        assert first == again == by_checksum
        assert len(served.requests) == 1
        assert bench.metric("remote_fetch_count", result="success") == 1
        assert bench.metric("cache_lookup_count", hit="true") == 2
        assert bench.metric("cache_lookup_count", hit="false") == 2  # before the fetch, and after
        assert bench.metric("cache_entries") == 1


async def test_who_wants_the_same_at_once_gets_the_same(tmp_path: Path) -> None:
    """D-17."""
    served = pages()
    async with web_server(served) as port, modules(tmp_path) as bench:
        wants = [Want(name, f"http://127.0.0.1:{port}/a") for name in "abc"]
        other = Want("d", f"http://127.0.0.1:{port}/b")
        *same, different = await asyncio.gather(*map(bench.path, [*wants, other]))

    assert len(set(same)) == 1
    assert different not in same
    assert sorted(request.path for request in served.requests) == ["/a", "/b"]


async def test_what_is_begun_goes_on_though_nobody_waits(tmp_path: Path) -> None:
    go_on, asked = asyncio.Event(), asyncio.Event()

    async def answer(_request: web.BaseRequest) -> web.Response:
        asked.set()
        await go_on.wait()
        return web.Response(body=MODULE)

    async with web_server(answer) as port, modules(tmp_path) as bench:
        want = Want("a", f"http://127.0.0.1:{port}/a")
        waiting = asyncio.ensure_future(bench.path(want))
        await asked.wait()
        waiting.cancel()
        go_on.set()
        await until(lambda: bench.metric("cache_entries"))
        await bench.path(want)

        assert bench.metric("remote_fetch_count", result="success") == 1


async def test_a_failure_is_counted_and_not_kept(tmp_path: Path) -> None:
    """T-W2."""
    served = pages()
    async with web_server(served) as port, modules(tmp_path) as bench:
        url = f"http://127.0.0.1:{port}/a"
        mismatch = await bench.failure(Want("a", url, "0" * 64))
        missing = await bench.failure(Want("a", f"{url}/none"))
        scheme = await bench.failure(Want("a", "foo://a"))
        late = await bench.failure(Want("a", url, timeout_seconds=0))
        image = await bench.failure(Want("a", f"oci://127.0.0.1:{port}/image"))

        assert mismatch.startswith(f"module downloaded from {url} has checksum {CHECKSUM}, which")
        assert missing.endswith("status 404")
        assert scheme == "unsupported Wasm module downloading URL scheme: foo"
        assert late.startswith("wasm module download failed after 0 attempts")
        assert image.startswith("could not fetch Wasm OCI image: ")
        assert bench.metric("remote_fetch_count", result="checksum_mismatched") == 1
        assert bench.metric("remote_fetch_count", result="download_failure") == 2
        assert bench.metric("remote_fetch_count", result="manifest_failure") == 1
        assert bench.metric("cache_entries") == 0
        await bench.path(Want("a", url))


async def test_what_is_unused_goes_and_what_is_in_use_stays(tmp_path: Path) -> None:
    """T-W3, D-17."""
    periods = {"expiry_seconds": 0.001, "purge_seconds": 0.001}
    async with web_server(pages()) as port, modules(tmp_path, **periods) as bench:
        used, unused = (Want(name, f"http://127.0.0.1:{port}/{name}") for name in "ab")
        key = await bench.modules.get(used)
        assert isinstance(key, Key)
        bench.modules.use({"a": key})
        path = await bench.path(used)
        gone = await bench.path(unused)

        await until(lambda: not gone.exists())

        assert not gone.parent.exists()
        assert path.exists()
        assert bench.metric("cache_entries") == 1


async def test_what_an_earlier_run_left_is_found(tmp_path: Path) -> None:
    """D-17: what was half done is removed, and what is not ours stays."""
    registry = FakeRegistry()
    digest = registry.push_docker("v1")
    async with web_server(registry) as port:
        url = f"oci://127.0.0.1:{port}/owner/image"
        async with modules(tmp_path) as bench:
            before = await bench.path(Want("a", f"{url}:v1"))
        half_done = before.parent / "tmpx.tmp"
        half_done.write_bytes(MODULE)
        os.utime(half_done, (0, 0))
        (before.parent / f"{'0' * 64}.wasm").write_bytes(b"")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "x.tmp").touch()
        registry.paths.clear()
        async with modules(tmp_path) as bench:
            assert bench.metric("cache_entries") == 1
            assert await bench.path(Want("a", f"{url}@{digest}")) == before
            assert registry.paths == []
            assert await bench.path(Want("a", f"{url}:v1")) == before
            assert not [path for path in registry.paths if "/blobs/" in path]

    assert not half_done.exists()
    assert (tmp_path / "other" / "x.tmp").exists()


async def test_a_file_that_somebody_has_removed_is_fetched_again(tmp_path: Path) -> None:
    async with web_server(pages()) as port, modules(tmp_path) as bench:
        want = Want("a", f"http://127.0.0.1:{port}/a")
        (await bench.path(want)).unlink()

        assert (await bench.path(want)).read_bytes() == MODULE


async def test_an_image_that_somebody_has_removed_is_pulled_again(tmp_path: Path) -> None:
    """Also where it is not known which version a tag means."""
    registry = FakeRegistry()
    registry.push_docker("v1")
    async with web_server(registry) as port, modules(tmp_path) as bench:
        url = f"oci://127.0.0.1:{port}/owner/image"
        first = await bench.path(Want("a", f"{url}:v1"))
        first.unlink()
        again = await bench.path(Want("a", f"{url}:v1", policy=Policy.ALWAYS, version="2"))

        assert again == first
        assert again.exists()


async def test_an_image_by_tag_and_by_digest_is_pulled_once(tmp_path: Path) -> None:
    """T-W4, R-25."""
    registry = FakeRegistry()
    digest = registry.push_docker("v1")
    registry.push_docker("v2")
    async with web_server(registry) as port, modules(tmp_path) as bench:
        url = f"oci://127.0.0.1:{port}/owner/image"
        first = await bench.path(Want("a", f"{url}:v1"))
        registry.paths.clear()

        assert await bench.path(Want("a", f"{url}@{digest}")) == first
        assert registry.paths == []
        assert await bench.path(Want("a", f"{url}:v2")) == first
        assert [path for path in registry.paths if "/blobs/" in path] == []
        assert bench.metric("remote_fetch_count", result="success") == 1


@pytest.mark.parametrize(
    ("policy", "asked"), [(Policy.ALWAYS, True), (Policy.IF_NOT_PRESENT, False)]
)
async def test_the_policy_says_whether_the_registry_is_asked(
    tmp_path: Path, policy: Policy, *, asked: bool
) -> None:
    """T-W5, T-W6."""
    registry = FakeRegistry()
    registry.push_docker("v1")
    async with web_server(registry) as port, modules(tmp_path) as bench:
        want = Want("a", f"oci://127.0.0.1:{port}/owner/image:v1", policy=policy, version="1")
        first = await bench.path(want)
        registry.push_docker("v1", MODULE + b"changed")
        registry.paths.clear()
        unchanged = await bench.path(want)

        assert unchanged == first
        assert registry.paths == []
        changed = await bench.path(want._replace(version="2"))
        assert bool(registry.paths) is asked
        assert (changed != first) is asked


# The process that fetches.


async def test_a_secret_is_nowhere_to_be_seen(tmp_path: Path) -> None:
    """R-3."""
    process = asyncio.Event()
    registry = FakeRegistry(user=("user", "hidden"))
    registry.push_docker("v1")

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        process.set()
        return await registry(request)

    async with web_server(answer) as port, modules(tmp_path) as bench:
        secret = PullSecret(docker_config(f"127.0.0.1:{port}", "user", "hidden"))
        want = Want("a", f"oci://127.0.0.1:{port}/owner/image:v1", secret=secret)
        pulling = asyncio.ensure_future(bench.path(want))
        await process.wait()
        place = Path(f"/proc/{bench.fetching.pid}")
        shown = (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        await pulling

    assert b"agent.wasm" in shown
    assert b"hidden" not in shown
    assert secret.text.encode() not in shown


async def test_there_is_a_process_only_while_there_is_work(tmp_path: Path) -> None:
    async with web_server(pages()) as port, modules(tmp_path) as bench:
        await bench.path(Want("a", f"http://127.0.0.1:{port}/a"))
        first = bench.fetching.pid
        assert first
        await until(lambda: bench.fetching.pid is None)
        await until(lambda: not is_there(first))
        await bench.path(Want("b", f"http://127.0.0.1:{port}/b"))
        second = bench.fetching.pid
        assert second

    assert not is_there(second)


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_process_that_dies_is_replaced_once(tmp_path: Path, deaths: int) -> None:
    """Once it may have been another order that it died of."""
    asked: asyncio.Queue[None] = asyncio.Queue()

    async def answer(_request: web.BaseRequest) -> web.StreamResponse:
        asked.put_nowait(None)
        if deaths > killed:
            await asyncio.Event().wait()
        return web.Response(body=MODULE)

    killed = 0
    async with web_server(answer) as port, modules(tmp_path) as bench:
        want = Want("a", f"http://127.0.0.1:{port}/a")
        waiting = asyncio.ensure_future(bench.modules.get(want))
        for _ in range(deaths):
            await asked.get()
            assert bench.fetching.pid
            killed += 1
            os.kill(bench.fetching.pid, signal.SIGKILL)
        got = await waiting

        assert isinstance(got, Key) is (deaths == 1)
        assert deaths == 1 or got == Failure("the fetching process has died")
        await bench.path(want)


async def test_a_process_that_hangs_is_ended(tmp_path: Path) -> None:
    async with web_server(pages()) as port, asyncio.TaskGroup() as group:
        fetching = Fetching(FetchSettings(str(tmp_path)), group.create_task, grace_seconds=0.1)
        order = FetchOrder(f"http://127.0.0.1:{port}/none", "", 10, None)
        await fetching.ask(order, 10)
        assert fetching.pid
        os.kill(fetching.pid, signal.SIGSTOP)

        outcome = await fetching.ask(order, 0)

        assert outcome == Refused("the fetching process hangs", "fetch_failure")
        assert fetching.pid is None


async def test_the_kernel_takes_the_process_before_any_other(tmp_path: Path) -> None:
    async with web_server(pages()) as port, modules(tmp_path) as bench:
        await bench.path(Want("a", f"http://127.0.0.1:{port}/a"))

        score = Path(f"/proc/{bench.fetching.pid}/oom_score_adj")
        assert score.read_text() == "1000\n"  # noqa: ASYNC240 - of the kernel


async def test_a_process_that_cannot_be_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    async with asyncio.TaskGroup() as group:
        fetching = Fetching(FetchSettings(str(tmp_path)), group.create_task)

        outcome = await fetching.ask(StructOrder("", b""), 1)

    assert outcome == Refused("no fetching process: no such file or directory", "fetch_failure")


async def test_the_process_trusts_whom_the_system_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority()
    (tmp_path / "root.pem").write_bytes(authority.root)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "root.pem"))
    (tmp_path / "cache").mkdir()
    tls = tls_context(tmp_path, authority.issue("modules"))
    async with web_server(pages(), tls=tls) as port, modules(tmp_path / "cache") as bench:
        path = await bench.path(Want("a", f"https://127.0.0.1:{port}/a"))

    assert path.parent.name == directory_of(f"https://127.0.0.1:{port}/a")
