"""Traffic does not notice what becomes of the control plane, and the agent keeps nothing of it.

`make chaos` runs this for some minutes; CHAOS_SEED repeats the order of a run that failed.
"""

import contextlib
import os
import random
import time
from pathlib import Path

import pytest

from agent.http.connection.client import RESOLVERS
from tests.envoy.chaos import MODES, Held, chaotic_pod
from tests.envoy.loaded_pod import LoadedPod
from tests.envoy.test_xds_cached_pod import KEPT, crash, is_kept, serving_cached, statuses
from tests.waiting import block_until

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

SECONDS = float(os.environ.get("CHAOS_SECONDS", "0"))
SEED = os.environ.get("CHAOS_SEED", str(time.time_ns()))
#: Whether they use delta xDS, keep what was accepted, and which policy their TLS follows.
PODS = (
    (True, True, ""),
    (False, True, ""),
    (True, False, ""),
    (False, False, ""),
    (True, False, "fips-140-3"),
)
KEPT_MEGABYTES = 10
#: A call to the CA may be under way, and a thread of gRPC's that was needed lives on for a while.
GIVEN_BACK_SECONDS = 40
REJECTED = "http://127.0.0.1:15000/stats?filter=update_rejected"


def grown(before: Held, after: Held, *, threads: int = 0) -> list[str]:
    """Return of what an agent holds more than it may; some threads it may have made meanwhile."""
    allowed = before._replace(
        anonymous_megabytes=before.anonymous_megabytes + KEPT_MEGABYTES,
        threads=before.threads + threads,
    )
    return [
        name for name, now, most in zip(Held._fields, after, allowed, strict=True) if now > most
    ]


@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize(("delta", "cached", "policy"), PODS if SECONDS else PODS[:1])
def test_a_control_plane_that_does_its_worst(
    *, delta: bool, cached: bool, policy: str, tmp_path: Path
) -> None:
    rng = random.Random(SEED)  # noqa: S311 - nothing secret
    threads = RESOLVERS if policy else 0  # else gRPC resolves names
    with chaotic_pod(tmp_path, delta=delta, cached=cached, policy=policy) as pod:
        load = LoadedPod(pod.made, 0.0)
        pod.plane.be("bulk", SEED)  # what the first large push takes is not given back
        time.sleep(2)
        before = pod.settle(SEED)
        done = pod.suffer(SECONDS, rng)
        pod.settle(SEED)
        with contextlib.suppress(TimeoutError):
            block_until(
                lambda: not grown(before, pod.held(), threads=threads),
                seconds=GIVEN_BACK_SECONDS,
            )
        after = pod.held()
        reports = load.reports()

    said = f"seed={SEED} modes={done} before={before} after={after}"
    assert [kind for kind, report in reports.items() if report["failed"]] == [], (said, reports)
    assert grown(before, after, threads=threads) == [], said


@pytest.mark.skipif(not SECONDS, reason="takes a minute: make chaos")
@pytest.mark.parametrize("delta", [True, False])
def test_an_agent_that_is_killed_starts_from_what_it_kept(*, delta: bool, tmp_path: Path) -> None:
    """Whatever the control plane was doing, and whatever it does when the pod is back."""
    rng = random.Random(SEED)  # noqa: S311 - nothing secret
    seen: dict[str, tuple[str, list[int], str, bool]] = {}
    with chaotic_pod(tmp_path, delta=delta, cached=True) as pod:
        assert pod.made.serve() == "listening"
        block_until(lambda: is_kept(pod.made.root / KEPT))
        for before in rng.sample(MODES, len(MODES)):
            pod.plane.be(before, str(rng.random()))
            time.sleep(rng.uniform(0.0, 1.5))
            crash(pod.made)
            during = rng.choice(MODES)
            pod.plane.be(during, str(rng.random()))
            started = pod.made.start()
            answers, cached = statuses(pod.made), serving_cached(pod.made)
            stats = pod.made.get("application", REJECTED).body
            # Where nobody else serves: of what was kept nothing is refused.
            has_refused = "rejected: 1" in stats and during == "absent"
            seen[f"{before}, {during}"] = started, answers, cached, has_refused

    said = f"seed={SEED} seen={seen}"
    for started, answers, _, has_refused in seen.values():
        assert (started, answers, has_refused) == ("exit 0", [200, 200], False), said
