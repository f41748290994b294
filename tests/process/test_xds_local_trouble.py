"""Local resources that cannot be read, watched or converted, or only at great cost."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.xds.discovery import Kind, Resource, write_response
from agent.xds.local.process import BAD_DATA
from agent.xds.local.run import local_backend
from agent.xds.monitor.run import Monitor
from agent.xds.resources import CLUSTER
from agent.xds.settings import CredentialSettings, UpstreamSettings, XdsSettings
from tests.fakes.local_bench import BETTER, GOOD, local, served, subscribed
from tests.waiting import until


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    directory = tmp_path / "resources"
    directory.mkdir()
    return directory


@pytest.mark.slow
async def test_a_file_that_cannot_be_read_is_named_and_is_no_reason_not_to_start(
    tmp_path: Path, resources: Path
) -> None:
    (resources / "a.yaml").write_text(GOOD)
    (resources / "b.yaml").symlink_to("nowhere")
    (resources / "c.yaml").mkdir()
    os.mkfifo(resources / "d.yaml")
    async with local(tmp_path, str(resources)) as (client, noticed):
        await noticed.becomes(f"local resources: {resources}/b.yaml: No such file or directory")
        (resources / "e.yaml").symlink_to("e.yaml")
        (resources / "b.yaml").unlink()
        await noticed.becomes(f"{resources}/e.yaml: Too many levels of symbolic links")
        (resources / "e.yaml").unlink()
        await served(await subscribed(client), b"one")


@pytest.mark.slow
async def test_a_name_that_is_no_text_is_a_name(tmp_path: Path, resources: Path) -> None:
    path = resources / os.fsdecode(b"caf\xe9.yaml")
    path.write_text("a: b: c")
    async with local(tmp_path, str(resources)) as (client, noticed):
        await noticed.becomes(r"/caf\xe9.yaml:1: is not YAML")
        path.write_text(GOOD)
        await served(await subscribed(client), b"one")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 20_000, "is nested too deeply"),
        ("&x [*x]", "an alias stands for what it is in"),
        ('"@type": this.Foo\nname: x', "there is no type 'this.Foo'"),
    ],
)
async def test_a_file_that_is_an_attack_is_named(
    text: str, reason: str, tmp_path: Path, resources: Path
) -> None:
    (resources / "a.yaml").write_text(text)
    async with local(tmp_path, str(resources)) as (_, noticed):
        await noticed.becomes(f"local resources: {resources}/a.yaml:1: {reason}")


@pytest.mark.slow
async def test_a_conversion_that_takes_long_makes_way_for_a_change(
    tmp_path: Path, resources: Path
) -> None:
    long = "".join(f'- {{"@type": {CLUSTER}, name: c{n}}}\n' for n in range(200_000))
    (resources / "a.yaml").write_text(long)
    async with local(tmp_path, str(resources)) as (client, _):
        call = await subscribed(client)
        await until(lambda: children("agent.xds.local"))
        (resources / "a.yaml").write_text(GOOD)

        await served(call, b"one")


def children(name: str) -> list[str]:
    """Return the command lines of this process's children that have a word in them."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in pids]
    return [line for line in lines if name in line]


@pytest.mark.slow
async def test_a_conversion_that_cannot_be_started_is_tried_again(
    tmp_path: Path, resources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the pod may have no more processes."""
    (resources / "a.yaml").write_text(GOOD)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere")
        async with local(tmp_path, str(resources)) as (client, noticed):
            await noticed.becomes(
                f"{resources}: cannot be converted now: no such file or directory"
            )
            patch.undo()
            (resources / "ignored.txt").write_text("")
            await served(await subscribed(client), b"one")


async def test_whatever_ends_the_following_is_told(
    tmp_path: Path, resources: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notes: list[str | None] = []
    told = asyncio.Event()

    def note(_: str, problem: str | None) -> None:
        if problem is None:
            raise RuntimeError("broken note")
        notes.append(problem)
        told.set()

    upstream = UpstreamSettings("", False, "", CredentialSettings(), ())  # noqa: FBT003 - TLS
    settings = XdsSettings(str(tmp_path / "XDS"), upstream, local=str(resources))
    monitor = Monitor(dict, count=print, observe=print)
    async with local_backend(settings, note, monitor.open):
        await told.wait()

    assert notes == ["local resources: not followed for 30 s: RuntimeError('broken note')"]
    assert "local resources are not followed retry_in_seconds=30" in caplog.text
    assert "Traceback" in caplog.text


UNWATCHED = """
import asyncio, sys
from agent.xds.local.run import local_backend
from agent.xds.monitor.run import Monitor
from agent.xds.settings import CredentialSettings, UpstreamSettings, XdsSettings

async def main():
    told = asyncio.Queue()
    upstream = UpstreamSettings("", False, "", CredentialSettings(), ())
    settings = XdsSettings("", upstream, local=sys.argv[1])
    note = lambda about, problem: told.put_nowait((about, problem))
    monitor = Monitor(dict, count=print, observe=print)
    async with local_backend(settings, note, monitor.open):
        for _ in range(2):
            print(*await told.get(), flush=True)

asyncio.run(main())
"""


@pytest.mark.root
@pytest.mark.slow
def test_a_directory_that_cannot_be_watched_is_looked_at(resources: Path) -> None:
    """The kernel's limits are for each user, in all containers of a node together."""
    (resources / "a.yaml").write_text(GOOD)
    limit = "echo 0 > /proc/sys/user/max_inotify_instances"
    script = f'{limit} && exec {sys.executable} -c "$0" {resources}'

    ran = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", script, UNWATCHED],
        capture_output=True,
        text=True,
        check=True,
    )

    problem = (
        f"cannot watch {resources}: too many open files; looking every 30 s; "
        "raise fs.inotify.max_user_instances"
    )
    assert ran.stdout.splitlines() == [f"watch local resources: {problem}", "local resources None"]
    assert ran.stderr == f"local resources are not watched reason='{problem}'\n"


@pytest.mark.slow
def test_a_conversion_has_so_much_time_and_says_which_file_took_it() -> None:
    """The limit is 20 seconds, or what is left under that of its parent."""
    long = "".join(f'- {{"@type": {CLUSTER}, name: c{n}}}\n' for n in range(200_000))
    files = {"a.yaml": GOOD, "b.yaml": long, "c.yaml": BETTER}
    packed = write_response(
        Kind.DELTA,
        "",
        version="",
        nonce="",
        resources=[Resource("", name, "", text.encode()) for name, text in files.items()],
    )

    ran = subprocess.run(
        ["sh", "-c", f"ulimit -t 3; exec {sys.executable} -m agent.xds.local"],
        input=packed,
        capture_output=True,
        check=False,
    )

    assert ran.returncode == BAD_DATA
    assert ran.stderr == b"b.yaml:1: takes more than 2 s to convert\n"
