"""When a request is sent again, and after how long.

Source: xds-identity-dns.md sections 3.5 and 3.6.
"""

from collections.abc import Callable
from typing import Final

Rng = Callable[[], float]

OK: Final = 200
SERVER_ERRORS: Final = range(500, 600)
#: Of those, what will be no different the next time.
FINAL_ERRORS: Final = (501, 505, 511)
REGISTRY_ATTEMPTS: Final = 3
REGISTRY_PAUSES: Final = (1.0, 3.0)
REGISTRY_STATUSES: Final = (408, 429, 499, 500, 502, 503, 504, 522)


def is_http_retried(status: int) -> bool:
    """Return whether a server of modules is asked again after this answer."""
    return status in SERVER_ERRORS and status not in FINAL_ERRORS


def http_pause(attempt: int, rng: Rng) -> float:
    """Return the seconds after a failed attempt, counted from 1: 0.5 and half more each time."""
    return float(min(0.5 * 1.5 ** (attempt - 1), 60.0)) * (0.5 + rng())


def registry_pause(attempt: int, rng: Rng) -> float:
    """Return the seconds after a failed attempt at a registry, counted from 1."""
    return REGISTRY_PAUSES[attempt - 1] * (0.9 + 0.2 * rng())
