"""What a kubelet asks of its container runtime: a pod's volumes, containers started, programs run.

The work in the namespaces is done by runtime.py, a program of its own.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.pod import cgroups, environment
from tests.pod.environment import Placed
from tests.pod.image import Image
from tests.pod.kubelet import StartError
from tests.pod.objects import Container, Mount
from tests.pod.volumes import Content, Files, HostPath, Sources, content, nested
from tests.waiting import until

RUNTIME: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("runtime.py")))
#: The link of a volume to its files; a new one replaces all of them at once.
DATA: Final = "..data"
ANNOUNCEMENT_SECONDS: Final = 20
#: Where the stand-in for applications shows that it is well.
HEALTHY: Final = "tmp/healthy"


class Process:
    """A container that runs."""

    def __init__(
        self, shim: asyncio.subprocess.Process, pid: int, spec: Mapping[str, Any], log: Path
    ) -> None:
        self.pid = pid
        self.log = log
        self._shim = shim
        self._spec = spec

    async def wait(self) -> int:
        """Return the exit code once it has ended."""
        return await self._shim.wait()

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def toggle_health(self) -> None:
        """Have the stand-in for an application become unhealthy, or healthy again."""
        mark = self.root / HEALTHY
        was_healthy = mark.exists()
        self.signal(signal.SIGUSR1)
        await until(lambda: mark.exists() != was_healthy)

    @property
    def root(self) -> Path:
        """Return its file system, as it sees it."""
        return Path(f"/proc/{self.pid}/root")

    async def spawn(
        self, argv: Sequence[str], *, stdin: int | None = None
    ) -> asyncio.subprocess.Process:
        """Return a program started in the container, as its user; `terminate` kills it.

        Its output is a pipe.
        """
        spec = {**self._spec, "argv": list(argv)}
        return await asyncio.create_subprocess_exec(
            *RUNTIME,
            "exec",
            json.dumps(spec),
            str(self.pid),
            stdin=stdin or asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def run(self, argv: Sequence[str]) -> tuple[int, str]:
        """Return the exit code and the output of a program run in the container."""
        program = await self.spawn(argv)
        try:
            output, _ = await program.communicate()
        except asyncio.CancelledError:
            program.terminate()
            await program.wait()
            raise
        return program.returncode or 0, output.decode(errors="replace").strip()


class Runtime(NamedTuple):
    """Starts the containers of one pod."""

    placed: Placed
    network: int  #: a process in the pod's network namespace
    nameserver: str
    image: Callable[[Container], Image]
    directory: Path  #: of the pod; must exist
    volumes: Mapping[str, str]  #: paths by name

    async def start(self, container: Container, attempt: int) -> Process:
        """Return a container that has begun.

        Raises:
            StartError: it could not be started, or never said that it has begun.
        """
        image = self.image(container)
        if container.security.is_never_root and not _uid(container, image):
            raise StartError(f"{container.name}: it may not be root, and is")
        log = self.directory / f"{container.name}.log"
        spec = self._spec(container, image, attempt)
        reader, writer = os.pipe()
        with log.open("ab") as output:
            os.fchown(output.fileno(), spec["uid"], spec["gid"])  # Envoy opens /dev/stdout anew
            shim = await asyncio.create_subprocess_exec(
                *RUNTIME,
                "run",
                json.dumps(spec),
                str(writer),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writer,),
            )
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = (await asyncio.to_thread(pipe.read)).strip()
        if not said.isdigit():
            await shim.wait()
            raise StartError(f"{container.name}: {said or 'no report'}")
        made = Process(shim, int(said), spec, log)
        if image.announcement:
            await _announced(made, image.announcement.lstrip("/"))
        return made

    def _spec(self, container: Container, image: Image, attempt: int) -> dict[str, Any]:
        security = container.security
        scratch = self.directory / f"{container.name}.{attempt}"
        scratch.mkdir()
        variables = environment.variables(self.placed, container)
        uid = _uid(container, image)
        gid = (image.uid if security.uid is None else 0) if security.gid is None else security.gid
        return {
            "network": self.network,
            "scratch": str(scratch),
            "layers": image.layers,
            "mounts": [*self._own_files(), *self._mounts(container), *_read_only(image.binds)],
            "groups_of_limits": cgroups.make(
                f"{self.placed.uid}.{container.name}.{attempt}", container.resources
            ),
            "read_only": security.read_only_root,
            "hostname": self.placed.name,
            "directory": container.directory or "/",
            "argv": environment.command(container, image.entrypoint, variables),
            "environ": {**image.environ, "HOSTNAME": self.placed.name, **variables},
            "uid": uid,
            "gid": gid,
            "groups": self.placed.workload.groups,
            "capabilities": sorted(security.capabilities),
            "no_new_privileges": security.no_new_privileges,
        }

    def _own_files(self) -> list[tuple[str, str, bool]]:
        """Return the mounts of the files that every container has of its own pod."""
        texts = {
            "hosts": environment.hosts(self.placed),
            "resolv.conf": environment.resolv_conf(self.placed, self.nameserver),
            "hostname": f"{self.placed.name}\n",
        }
        for name, text in texts.items():
            (self.directory / name).write_text(text)
        return [(str(self.directory / name), f"/etc/{name}", False) for name in texts]

    def _mounts(self, container: Container) -> list[tuple[str, str, bool]]:
        """Return its mounts: what is mounted in another comes after it.

        Nobody in a pod writes what a kubelet has written.
        """

        def source(mount: Mount) -> str:
            return f"{self.volumes[mount.volume]}/{mount.sub_path}".rstrip("/")

        def is_read_only(mount: Mount) -> bool:
            return mount.read_only or Path(self.volumes[mount.volume], DATA).exists()

        mounts = sorted(container.mounts, key=lambda each: each.path)
        return [(source(each), each.path, is_read_only(each)) for each in mounts]


def _uid(container: Container, image: Image) -> int:
    uid = container.security.uid
    return image.uid if uid is None else uid


def _read_only(binds: Sequence[tuple[str, str]]) -> list[tuple[str, str, bool]]:
    return [(source, target, True) for source, target in binds]


async def _announced(process: Process, name: str) -> None:
    """Return once the container's program has made a file; its end is for others to notice."""
    path = process.root / name
    await until(lambda: path.exists() or not process.root.exists(), seconds=ANNOUNCEMENT_SECONDS)


def make_volumes(placed: Placed, sources: Sources, directory: Path) -> dict[str, str]:
    """Make a pod's volumes in a directory; return their paths by name.

    Raises:
        NotFoundError: one needs an object that there is not.
    """
    made = {}
    for volume in placed.workload.volumes:
        name = volume["name"]
        made[name] = _make_volume(directory / name, content(volume, placed, sources))
    for container in placed.workload.all_containers():
        for name, below in nested((each.volume, each.path) for each in container.mounts):
            Path(made[name], below).mkdir(parents=True, exist_ok=True)
    return made


def _make_volume(path: Path, found: Content) -> str:
    if isinstance(found, HostPath):
        return found.path
    path.mkdir(parents=True)
    if isinstance(found, Files):
        write_files(path, found, "1")
    else:
        os.chown(path, -1, found.gid)
        path.chmod(found.mode)  # whatever the umask
    return str(path)


def write_files(volume: Path, found: Files, version: str) -> None:
    """Write a volume's files, or replace all of them at once, by links as the kubelet does."""
    directory = volume / f"..{version}"
    directory.mkdir()
    directory.chmod(0o755)
    for name, file in found.files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
        os.chown(path, file.uid, file.gid)
        path.chmod(file.mode)
    link = volume / f"{DATA}_tmp"
    link.symlink_to(directory.name)
    link.rename(volume / DATA)
    for name in found.files:
        top = Path(name).parts[0]
        if not (volume / top).is_symlink():
            (volume / top).symlink_to(f"{DATA}/{top}")
