"""An agent that is killed while it starts leaves nothing running, whenever that is."""

import select
import time
from pathlib import Path

import pytest

from agent.demo.run import RunningPod, pod
from tests.waiting import block_until

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

#: From before the agent's own first line to an Envoy at its gate.
MILLISECONDS = [4 + 0.8 * number for number in range(60)]


def kill_after(made: RunningPod, milliseconds: float) -> None:
    """Start the agent and kill it so much later, unless it has ended by then."""
    began = time.monotonic()
    agent = made.start_agent()
    select.select([], [], [], max(milliseconds / 1000 - (time.monotonic() - began), 0))
    agent.kill()
    agent.wait()


def test_nothing_outlives_an_agent_that_is_killed_while_it_starts() -> None:
    """Case D26."""
    with pod() as made:
        others = set(made.inside.processes())

        for milliseconds in MILLISECONDS:
            kill_after(made, milliseconds)
            block_until(lambda: set(made.inside.processes()) <= others)

        assert "Error" not in made.log_text()
        assert made.start() == "exit 0", made.log_text()
        left = {path.name for path in Path(made.root / "etc/istio/proxy").iterdir()}
        assert left == {"XDS", "envoy-rev.json", "grpc-bootstrap.json"}
