"""What a kubelet decides of one container: whether it runs again, and when; what probes say."""

from collections.abc import Sequence
from typing import Final

from tests.pod.objects import Policy, Probe

BACKOFF_SECONDS: Final = 10.0
LONGEST_BACKOFF_SECONDS: Final = 300.0


def restarts(policy: Policy, code: int) -> bool:
    """Return whether a container that has ended runs again."""
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def backoff_seconds(ends: int) -> float:
    """Return the pause before a container runs again, having ended so often."""
    return min(BACKOFF_SECONDS * 2 ** (ends - 2), LONGEST_BACKOFF_SECONDS) if ends > 1 else 0.0


def thresholds(results: Sequence[bool], probe: Probe) -> tuple[bool, bool]:
    """Return whether the latest results make a success, and whether they make a failure."""
    same = 0
    for result in reversed(results):
        if result != results[-1]:
            break
        same += 1
    return (
        results[-1] and same >= probe.success_threshold,
        not results[-1] and same >= probe.failure_threshold,
    )
