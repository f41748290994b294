"""How long to wait before trying again."""

from collections.abc import Callable

#: Later attempts wait no longer; a power of two beyond it would be no number any more.
LAST_DOUBLING = 32


def backoff_seconds(
    attempt: int, rng: Callable[[], float], *, first: float, longest: float, spread: float = 0.2
) -> float:
    """Return the delay before an attempt: doubled each time, and a random share shorter.

    The delays of consecutive attempts grow until they reach the longest, for any spread up to a
    half, and those who failed together do not come back together.

    Args:
        attempt: counted from 1.
        rng: chance, in [0, 1).
        first: seconds before the first attempt.
        longest: seconds that no delay exceeds.
        spread: the largest share taken off.
    """
    doubled = first * 2.0 ** min(attempt - 1, LAST_DOUBLING)
    return min(doubled, longest) * (1 - spread * rng())
