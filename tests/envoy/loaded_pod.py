"""A whole pod under load from both sides, and what becomes of every request while it ends."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from agent.demo import manifest
from agent.demo.addresses import CABLE
from agent.demo.commands import APPLICATION, Credentials
from agent.demo.process import Namespace, first_gone
from agent.demo.run import RunningPod, pod

FAKES = Path(__file__).parents[1] / "fakes"
#: 200 requests a second through the sidecar.
INBOUND = ("fresh=50", "kept=60", "http2=60", "upgraded=10")
OUTBOUND = ("fresh=20",)
PATIENCE_SECONDS = 20


class Talker:
    """A program that is told and answers in lines."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.child = child

    def hear(self) -> str:
        assert self.child.stdout
        return self.child.stdout.readline().decode().strip()

    def tell(self, command: str) -> float:
        """Have it do something; return when it was done, by CLOCK_MONOTONIC."""
        assert self.child.stdin
        self.child.stdin.write(f"{command}\n".encode())
        word, _, at = self.hear().partition(" ")
        assert word == command.partition(" ")[0], word
        return float(at)

    def report(self) -> dict[str, dict[str, object]]:
        """End it; return what became of its requests."""
        assert self.child.stdin
        self.child.stdin.close()
        report: dict[str, dict[str, object]] = json.loads(self.hear())
        return report


def talk(where: Namespace, argv: Sequence[str], credentials: Credentials | None = None) -> Talker:
    """Return a program of ours, started in a namespace."""
    return Talker(
        where.spawn(
            [sys.executable, *argv],
            credentials=credentials,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    )


class LoadedPod:
    """A running pod, its application, and load from the node and from the application."""

    def __init__(self, made: RunningPod, application_seconds: float) -> None:
        self.made = made
        load, application = (
            str(shutil.copy(FAKES / name, made.root))
            for name in ("load.py", "graceful_application.py")
        )
        port = str(manifest.APPLICATION_PORT)
        serve = (application, port)
        self.application = talk(made.inside, [*serve, str(application_seconds)], APPLICATION)
        self.beyond = talk(made.node, serve)
        assert [self.application.hear(), self.beyond.hear()] == ["listening"] * 2
        self.inbound = talk(made.node, [load, CABLE.pod_ipv4, port, *INBOUND])
        self.outbound = talk(made.inside, [load, CABLE.node_ipv4, port, *OUTBOUND], APPLICATION)
        assert [self.inbound.hear(), self.outbound.hear()] == ["begun"] * 2

    def terminate(self, *, application: bool = False) -> float:
        """Send the pod's SIGTERM; return when."""
        self.made.terminate()
        if application:
            self.terminate_application()
        return time.monotonic()

    def terminate_application(self) -> None:
        self.application.child.send_signal(signal.SIGTERM)

    def ended_at(self) -> float:
        """Return when the agent was gone, by CLOCK_MONOTONIC."""
        assert self.made.agent
        assert first_gone([self.made.agent.pid], PATIENCE_SECONDS)
        return time.monotonic()

    def reports(self) -> dict[str, dict[str, object]]:
        """Return what became of all requests, by kind."""
        outbound = {f"outbound {kind}": said for kind, said in self.outbound.report().items()}
        return {**self.inbound.report(), **outbound}


@contextmanager
def loaded_pod(
    environ: Mapping[str, str],
    proxy_config: Mapping[str, object] | None = None,
    *,
    application_seconds: float = 0.0,
) -> Iterator[LoadedPod]:
    """Yield a pod that is ready and under load."""
    with pod() as made:
        config = {"proxyMetadata": manifest.PROXY_METADATA, **(proxy_config or {})}
        made.environ.update(environ, PROXY_CONFIG=json.dumps(config))
        assert made.capture() == "exit 0"
        assert made.start() == "exit 0", made.log_text()
        yield LoadedPod(made, application_seconds)
