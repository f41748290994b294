"""Traffic does not notice what becomes of the control plane, and the agent keeps nothing of it.

`make chaos` runs this for two minutes; CHAOS_SEED repeats the order of a run that failed.
"""

import os
import random
import time
from pathlib import Path

import pytest

from tests.envoy.chaos import chaotic_pod

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

SECONDS = float(os.environ.get("CHAOS_SECONDS", "0"))
SEED = os.environ.get("CHAOS_SEED", str(time.time_ns()))
KEPT_MEGABYTES = 10


@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize("delta", [True, False] if SECONDS else [True])
def test_a_control_plane_that_does_its_worst(delta: bool, tmp_path: Path) -> None:  # noqa: FBT001 -- a column
    rng = random.Random(SEED)  # noqa: S311 - nothing secret
    with chaotic_pod(tmp_path, delta=delta) as pod:
        pod.plane.be("bulk", SEED)  # what the first large push takes is not given back
        time.sleep(2)
        before = pod.settle(SEED)
        done = pod.suffer(SECONDS, rng)
        after = pod.settle(SEED)
        reports = pod.load.reports()

    said = f"seed={SEED} modes={done} before={before} after={after}"
    assert [kind for kind, report in reports.items() if report["failed"]] == [], (said, reports)
    assert after.anonymous_megabytes <= before.anonymous_megabytes + KEPT_MEGABYTES, said
    assert after.descriptors <= before.descriptors, said
    assert after.threads <= before.threads, said
    assert after.children <= before.children, said
