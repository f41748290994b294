"""A pod whose control plane does its worst, and what that leaves in the agent."""

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from agent.demo import manifest
from agent.demo.addresses import CABLE
from agent.demo.run import RunningPod, pod
from tests.fakes.control_plane import SERVER_NAME, Authority
from tests.waiting import block_until

ADDRESS: Final = f"{CABLE.node_ipv4}:15012"
#: Where the injector mounts what the agent believes the control plane by.
ROOT_CERTIFICATE: Final = "var/run/secrets/istio/root-cert.pem"
#: What chaos_plane.py can do wrong, and what only its killer can.
MODES: Final = (
    *("good", "bulk", "invalid", "garbage", "abort", "silent", "hang", "reset", "plain"),
    *("absent", "replaced root", "foreign certificate"),
)
TREE: Final = Path(__file__).parents[2]


class Held(NamedTuple):
    """What an agent holds."""

    anonymous_megabytes: float
    sockets: int
    descriptors: int  #: all of them
    threads: int
    children: int
    tasks: int  #: of asyncio
    files: int  #: where it may write


def held(pid: int, tasks: int, directory: Path) -> Held:
    """Return what a process holds now."""
    process = Path(f"/proc/{pid}")
    rollup = (process / "smaps_rollup").read_text()
    found = re.search(r"^Anonymous:\s+(\d+) kB", rollup, re.MULTILINE)
    assert found
    children = (process / "task" / str(pid) / "children").read_text().split()
    descriptors = []
    for path in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            descriptors.append(str(path.readlink()))
    return Held(
        int(found[1]) / 1000,
        sum(each.startswith("socket:") for each in descriptors),
        len(descriptors),
        len(list((process / "task").iterdir())),
        len(children),
        tasks,
        sum(path.is_file() for path in directory.rglob("*")),
    )


class Plane:
    """The pod's control plane: one process after the other, each with a mode."""

    def __init__(self, made: RunningPod, directory: Path) -> None:
        self._made = made
        self._directory = directory
        self._authority = Authority()
        self._child: subprocess.Popen[bytes] | None = None
        self._certify(self._authority)

    def be(self, mode: str, seed: str) -> None:
        """Replace what is there by a control plane of a mode."""
        self.kill()
        if mode == "absent":
            return
        if mode == "replaced root":
            self._authority = Authority()
        self._certify(Authority() if mode == "foreign certificate" else self._authority)
        acted = mode if mode in MODES[: MODES.index("absent")] else "good"
        self._child = self._made.node.spawn(
            [
                *(sys.executable, "-m", "tests.fakes.chaos_plane"),
                *(str(self._directory), ADDRESS, acted, seed),
            ],
            environ={**os.environ, "PYTHONPATH": str(TREE)},
            stdout=subprocess.PIPE,
        )
        assert self._child.stdout
        assert self._child.stdout.readline() == b"listening\n"

    def kill(self) -> None:
        """End it as a node does that loses its power."""
        if self._child:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _certify(self, issuer: Authority) -> None:
        pair = issuer.issue(SERVER_NAME)
        (self._directory / "server.pem").write_bytes(pair.certificate)
        (self._directory / "server.key").write_bytes(pair.key)
        root = self._made.root / ROOT_CERTIFICATE
        root.parent.mkdir(parents=True, exist_ok=True)
        staged = root.with_suffix(".new")
        staged.write_bytes(self._authority.root)
        staged.chmod(0o644)
        staged.replace(root)


class ChaoticPod:
    """A pod and its control plane."""

    def __init__(self, made: RunningPod, plane: Plane) -> None:
        self.made = made
        self.plane = plane

    def held(self) -> Held:
        """Return what the agent holds."""
        assert self.made.agent
        shown = self.made.get("application", "http://127.0.0.1:15020/debug/tasks")
        tasks = json.loads(shown.body)["count"]
        return held(self.made.agent.pid, tasks, self.made.root / "etc/istio")

    def responses(self) -> int:
        """Return how many responses the agent has had of its control planes."""
        scrape = self.made.get("application", "http://127.0.0.1:15020/stats/prometheus")
        found = re.search(r"^istio_agent_xds_proxy_responses (\d+)", scrape.body, re.MULTILINE)
        return int(found[1]) if found else 0

    def settle(self, seed: str) -> Held:
        """Have a good control plane serve; return what the agent holds once all is quiet."""
        responses = self.responses()
        self.plane.be("good", seed)
        block_until(lambda: self.responses() > responses, seconds=60)
        time.sleep(2)  # what is given back after a large push is given back by then
        return self.held()

    def suffer(self, seconds: float, rng: random.Random) -> list[str]:
        """Let one misbehaviour follow the other for some time, each at least once; return them."""
        end = time.monotonic() + seconds
        done: list[str] = []
        while time.monotonic() < end or len(done) < len(MODES):
            rest = [mode for mode in MODES if mode not in done] or list(MODES)
            mode = rng.choice(rest)
            done.append(mode)
            self.plane.be(mode, str(rng.random()))
            time.sleep(rng.uniform(0.2, 1.5))
        return done


@contextmanager
def chaotic_pod(
    directory: Path, *, delta: bool, cached: bool, policy: str = ""
) -> Iterator[ChaoticPod]:
    """Yield a pod that is ready, and gets its configuration from a control plane."""
    with pod() as made:
        plane = Plane(made, directory)
        metadata = {**manifest.PROXY_METADATA, "ISTIO_DELTA_XDS": str(delta).lower()}
        made.environ.update(
            AGENT_LOCAL_XDS="",
            AGENT_XDS_CACHE=str(cached).lower(),
            AGENT_XDS_CACHE_AFTER="500ms",
            COMPLIANCE_POLICY=policy,
            ISTIOD_SAN=SERVER_NAME,
            ISTIO_DELTA_XDS=str(delta).lower(),
            PROXY_CONFIG=json.dumps({"discoveryAddress": ADDRESS, "proxyMetadata": metadata}),
        )
        plane.be("good", "0")
        try:
            assert made.capture() == "exit 0"
            assert made.start() == "exit 0", made.log_text()
            yield ChaoticPod(made, plane)
        finally:
            plane.kill()
