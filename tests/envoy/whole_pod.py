"""A pod of the demo in which everything runs, and the Envoys in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.demo.run import RunningPod, pod
from agent.demo.scenario import START_UP


@contextmanager
def started(**environ: str) -> Iterator[RunningPod]:
    """Yield a pod that is ready, its agent with further variables."""
    with pod() as made:
        made.environ.update(environ)
        for step in START_UP:
            assert step.observe(made) == step.expected, made.log_text()
        yield made


def envoys(of: RunningPod) -> list[int]:
    """Return the Envoys in the pod."""
    pids = of.inside.processes()
    return [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text() == "envoy\n"]
