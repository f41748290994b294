"""When a certificate is renewed, and when a failed renewal is tried again.

A certificate's validity is a matter of the wall clock, which steps; how long it has been in use is
one of the clock that only runs. A renewal is due by whichever of the two comes first: a wall clock
that steps forward shows that time is up, one that steps back does not make the certificate last.
Both count the time in which the machine was suspended.

Source: xds-identity-dns.md sections 4.7 and 5.7.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

#: Between attempts to get a certificate; by the same factor and spread files are read again.
#: Sections 4.7 and 5.4.
FIRST_RETRY_SECONDS: Final = 0.5
RETRY_FACTOR: Final = 1.5
RETRY_SPREAD: Final = 0.5
LONGEST_RETRY_SECONDS: Final = 60.0
#: After so many failures the delay grows no more, and its formula would overflow one day.
LAST_GROWTH: Final = 16
#: Between receipt and renewal, whatever the settings say: a ratio of 1 must not flood the CA.
SHORTEST_USE_SECONDS: Final = 1.0
#: Share of the lifetime under which an overdue certificate is an error, and not a warning.
ALARM_RATIO: Final = 0.25

Chance = Callable[[], float]  #: in [0, 1)


class Moment(NamedTuple):
    """One point in time, on both clocks, in seconds."""

    wall: float  #: Unix time
    running: float  #: since boot, suspension included


class Schedule(NamedTuple):
    """When a certificate was received, is to be renewed, and expires."""

    received: Moment
    renew_wall: float
    renew_running: float
    expires: float  #: Unix time

    def seconds_to_renewal(self, now: Moment) -> float:
        """Return the time left, zero if it is due."""
        return max(min(self.renew_wall - now.wall, self.renew_running - now.running), 0.0)

    def seconds_left(self, now: Moment) -> float:
        """Return the time to expiry, negative after it."""
        return self.expires - now.wall

    def is_expired(self, now: Moment) -> bool:
        """Return whether nobody would accept the certificate any more."""
        return now.wall >= self.expires

    def is_alarming(self, now: Moment) -> bool:
        """Return whether so little is left that someone must act."""
        lifetime = self.expires - self.received.wall
        return self.seconds_left(now) < ALARM_RATIO * lifetime


def schedule(
    expires: float, received: Moment, *, grace_ratio: float, jitter_ratio: float, rng: Chance
) -> Schedule:
    """Return when to renew a certificate.

    Args:
        expires: notAfter, Unix seconds.
        received: when the CA's response arrived.
        grace_ratio: share of the lifetime kept in reserve.
        jitter_ratio: its largest random change, up or down; so that a thousand pods that started
            together do not all come back at once (C11).
        rng: chance.
    """
    sign = 1 if rng() < 0.5 else -1  # noqa: PLR2004 - even odds
    grace = min(max(grace_ratio + sign * rng() * jitter_ratio, 0.0), 1.0)
    lifetime = expires - received.wall
    delay = max(renewal_delay(lifetime, grace), min(SHORTEST_USE_SECONDS, lifetime / 2))
    return Schedule(received, received.wall + delay, received.running + delay, expires)


def renewal_delay(lifetime: float, grace: float) -> float:
    """Return the seconds from receipt to renewal, zero for a certificate that has expired.

    Args:
        lifetime: seconds from receipt to expiry.
        grace: share of it kept in reserve, in [0, 1], jitter included.
    """
    return max(lifetime - grace * lifetime, 0.0)


def retry_delay(failures: int, rng: Chance, *, first: float = FIRST_RETRY_SECONDS) -> float:
    """Return the seconds before the next attempt, after so many failures in a row."""
    grown = first * RETRY_FACTOR ** min(failures - 1, LAST_GROWTH)
    return min(grown, LONGEST_RETRY_SECONDS) * (1 + RETRY_SPREAD * (2 * rng() - 1))
