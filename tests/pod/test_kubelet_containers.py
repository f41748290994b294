"""Real containers, of the image's file system: what they see, what they may, how they end."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agent.demo.process import Namespace, namespace
from tests.pod.cluster import new_directory
from tests.pod.containers import Process, Runtime, make_volumes, write_files
from tests.pod.environment import Placed
from tests.pod.image import Image, agent_image
from tests.pod.kubelet import StartError
from tests.pod.objects import parse_workload
from tests.pod.volumes import File, Files, Sources
from tests.waiting import until

pytestmark = [pytest.mark.root, pytest.mark.slow]

Json = dict[str, Any]
VOLUMES = [
    {"name": "scratch", "emptyDir": {}},
    {"name": "settings", "configMap": {"name": "settings"}},
    {"name": "nested", "configMap": {"name": "none", "optional": True}},
]
MOUNTS: list[Json] = [
    {"name": "nested", "mountPath": "/var/run/settings/nested"},
    {"name": "settings", "mountPath": "/var/run/settings"},
    {"name": "settings", "mountPath": "/etc/one", "subPath": "a", "readOnly": True},
    {"name": "scratch", "mountPath": "/scratch"},
]
SANDBOXED = {
    "runAsUser": 1337,
    "runAsGroup": 1337,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}
SOURCES = Sources({("default", "settings"): {"a": "1"}}, {}, lambda *_: "token")
FOR_EVER = ("sleep", "1000")
NUMBERS = count()


class Made:
    """What containers are started with."""

    def __init__(self, directory: Path, inside: Namespace, image: Image) -> None:
        self.directory = directory
        self.inside = inside
        self.image = image

    @asynccontextmanager
    async def running(self, *command: str, **security: object) -> AsyncIterator[Process]:
        """Run a command in a container, and kill whatever is left of it."""
        container = {"name": "c", "image": "i", "command": command, "volumeMounts": MOUNTS}
        spec = {
            "containers": [{**container, "securityContext": security}],
            "volumes": VOLUMES,
            "securityContext": {"fsGroup": 9, "supplementalGroups": [8]},
            "automountServiceAccountToken": False,
        }
        workload = parse_workload({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
        placed = Placed("pod-1", "u", workload, "10.0.0.2", "node", "10.0.0.1", {})
        directory = self.directory / str(next(NUMBERS))
        directory.mkdir()
        volumes = make_volumes(placed, SOURCES, directory / "volumes")
        holder, image = self.inside.holder, self.image
        runtime = Runtime(placed, holder, "10.0.0.1", lambda _: image, directory, volumes)
        process = await runtime.start(workload.containers[0], 0)
        try:
            yield process
        finally:
            process.signal(signal.SIGKILL)
            await process.wait()

    async def said(self, command: str, **security: object) -> str:
        """Return what a shell in a container writes."""
        async with self.running("sh", "-c", command, **security) as process:
            await process.wait()
            return process.log.read_text().strip()


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    with new_directory() as directory, namespace() as inside:
        yield Made(directory, inside, agent_image(directory / "image"))


async def test_a_container_is_a_machine_of_its_own(made: Made) -> None:
    said = await made.said(
        "hostname; echo $$$$; cat /etc/hostname; grep -c : /proc/net/dev; ls /proc/1/fd"
    )

    assert said.splitlines()[:3] == ["pod-1", "1", "pod-1"]
    assert said.splitlines()[3] == "1"  # lo: the network is the pod's
    assert set(said.split()[4:]) <= {"0", "1", "2", "3"}, "descriptors of the runtime are left"


async def test_the_image_has_what_the_agents_has(made: Made) -> None:
    said = await made.said(
        "for n in agent pilot-agent envoy iptables nft setpriv; do command -v $n; done"
    )

    own, tools = said.splitlines()[:3], said.splitlines()[3:]
    assert own == [f"/usr/local/bin/{name}" for name in ("agent", "pilot-agent", "envoy")]
    assert len(tools) == 3
    assert "mesh-agent" in await made.said("pilot-agent version", **SANDBOXED)
    assert "version" in await made.said("envoy --version", **SANDBOXED)


async def test_it_sees_nothing_but_its_image_and_its_volumes(made: Made) -> None:
    """So what runs in it is the image's, not the source tree's."""
    said = await made.said("cat /proc/self/mountinfo")

    own = [line for line in said.splitlines() if " - overlay " in line]
    lower = {
        each for line in own for each in line.partition("lowerdir=")[2].split(",")[0].split(":")
    }
    assert lower == {each for _, layers in made.image.layers for each in layers}
    others = {line.split()[4] for line in said.splitlines()} - {line.split()[4] for line in own}
    outside = {each for each in others if not each.startswith(("/dev", "/proc", "/sys"))}
    assert outside == {
        *("/etc/hosts", "/etc/resolv.conf", "/etc/hostname"),
        *(path.replace("/var/run", "/run") for path in (each["mountPath"] for each in MOUNTS)),
    }


async def test_every_module_of_ours_has_its_byte_code(made: Made) -> None:
    """A pod cannot make any: its root is read-only."""
    found = (
        "import agent, importlib.util as u, pathlib;"
        "paths = [*pathlib.Path(agent.__file__).parent.rglob('*.py')];"
        "print(len(paths), [p for p in paths if not pathlib.Path(u.cache_from_source(p)).exists()])"
    )
    said = await made.said(f'/opt/mesh-agent/bin/python -c "{found}"')

    number, _, missing = said.partition(" ")
    assert int(number) > 100
    assert missing == "[]"


async def test_who_is_sandboxed_has_no_rights(made: Made) -> None:
    said = await made.said(
        "id -u; id -g; id -G; grep -E '^(Cap|NoNew)' /proc/self/status;"
        "touch /x /usr/x /etc/hosts /dev/shm/x",
        **SANDBOXED,
    )

    lines = said.splitlines()
    assert lines[:3] == ["1337", "1337", "1337 8 9"]
    rights = dict(line.split(":\t") for line in lines if ":\t" in line)
    assert {int(value, 16) for name, value in rights.items() if name != "NoNewPrivs"} == {0}
    assert rights["NoNewPrivs"] == "1"
    assert said.count("Read-only file system") == 2


async def test_who_is_root_has_what_is_added_and_no_more(made: Made) -> None:
    security = {"runAsUser": 0, "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}

    said = await made.said(
        "grep -E '^Cap(Eff|Prm|Bnd|Inh)' /proc/self/status; touch /x", **security
    )

    values = {line.split()[0]: int(line.split()[1], 16) for line in said.splitlines()}
    assert values == {"CapInh:": 0, "CapPrm:": 1 << 12, "CapEff:": 1 << 12, "CapBnd:": 1 << 12}


async def test_who_must_not_be_root_is_not_started_as_root(made: Made) -> None:
    with pytest.raises(StartError, match="it may not be root"):
        async with made.running("true", runAsUser=0, runAsNonRoot=True):
            pass


async def test_root_changes_neither_the_kernel_nor_what_the_kubelet_wrote(made: Made) -> None:
    said = await made.said(
        "echo 1 >/proc/sys/net/ipv4/ip_forward; touch /run/settings/a; touch /scratch/x",
        runAsUser=0,
    )

    assert said.count("Read-only file system") == 2
    assert len(said.splitlines()) == 2


async def test_volumes_are_where_they_are_mounted(made: Made) -> None:
    said = await made.said(
        "cat /var/run/settings/a /etc/one; echo; cd /run/settings/nested && pwd; touch /scratch/x;"
        "stat -Lc %a:%g /scratch /scratch/x /run/settings/a",
        **SANDBOXED,
    )

    assert said.split() == ["11", "/run/settings/nested", "2777:9", "644:9", "644:9"]


async def test_files_of_a_volume_are_replaced_all_at_once(made: Made) -> None:
    async with made.running(*FOR_EVER) as process:
        volume = process.log.parent / "volumes/settings"
        write_files(volume, Files({"a": File("2"), "b": File("3", 0o600, 1337)}), "2")

        said = await process.run(["sh", "-c", "cd /var/run/settings; cat a b; stat -Lc %a:%u b"])

    assert said == (0, "23600:1337")


async def test_a_program_is_run_beside_the_first_as_the_same_user(made: Made) -> None:
    async with made.running(*FOR_EVER, **SANDBOXED) as process:
        code, said = await process.run(["sh", "-c", "id -u; cat /proc/1/comm; hostname; exit 3"])
        missing = await process.run(["nothing"])

    assert (code, said.split()) == (3, ["1337", "sleep", "pod-1"])
    assert missing[0] == 127
    assert "No such file" in missing[1]


async def test_the_first_process_gets_signals_and_its_code_is_the_containers(made: Made) -> None:
    async with made.running("sh", "-c", "trap 'exit 5' TERM; echo up; sleep 9 & wait") as process:
        await until(lambda: "up" in process.log.read_text())
        process.signal(signal.SIGTERM)
        assert await process.wait() == 5

    async with made.running(*FOR_EVER) as process:
        process.signal(signal.SIGKILL)
        assert await process.wait() == 128 + signal.SIGKILL


async def test_a_container_that_ends_takes_all_of_its_processes_along(made: Made) -> None:
    async with made.running("sh", "-c", "sleep 1000 & echo up; exec sleep 1000") as process:
        await until(lambda: "up" in process.log.read_text())
        before = len(made.inside.processes())
        process.signal(signal.SIGKILL)
        await process.wait()

    assert before - len(made.inside.processes()) == 3  # both, and the shim


async def test_a_program_that_is_not_there_is_said_to_be_so(made: Made) -> None:
    with pytest.raises(StartError, match="c: "):
        async with made.running("nothing"):
            pass


async def test_a_program_whose_question_is_given_up_is_killed(made: Made) -> None:
    async with made.running(*FOR_EVER) as process:
        before = len(made.inside.processes())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await process.run(["sleep", "1000"])
        await until(lambda: len(made.inside.processes()) == before)


async def test_nothing_is_left_of_a_container(made: Made) -> None:
    async with made.running(*FOR_EVER) as process:
        scratch = process.log.parent / "c.0"
        assert not any(scratch.iterdir()), "its mounts are to be seen outside"
    mounts = await asyncio.to_thread(Path("/proc/self/mounts").read_text)

    assert str(made.directory) not in mounts
    assert not any(scratch.iterdir())
