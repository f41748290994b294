"""Keeps a certificate that is good: one loop asks the CA, and nobody else does.

    none --somebody needs it--> asking --issued--> good --due--> asking again
      ^                           |                 ^               |
      +-----------failed----------+                 +----failed-----+  after a growing delay

Whoever needs a certificate takes the one that is there, until it expires, or waits for the attempt
that is under way: there is never more than one (R-11). A new one replaces the old one only once it
is there and found to be good (C13, D-25).

Source: xds-identity-dns.md sections 4.7, 5.3 and 5.7; cases C3, C8, C11, C12 and C13.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from agent.credentials.files import usable_roots
from agent.errors import SecretError
from agent.identity import authority
from agent.identity.authority import Csr, Issued
from agent.identity.rotation import Moment, Schedule, retry_delay, schedule
from agent.identity.secret import KeyPair
from agent.identity.settings import RotationSettings

log = logging.getLogger(__name__)

#: Nothing tells that the wall clock was set, so it is looked at this often.
LOOK_SECONDS: Final = 60.0


class Clock:
    """Time as it passes."""

    def now(self) -> Moment:
        """Return this moment."""
        return Moment(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME))

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Return when the event is set, or after these seconds, or earlier to look again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, LOOK_SECONDS)):
                await event.wait()


class Signer(Protocol):
    """The CA; client.py."""

    address: str

    async def sign(self, request: str, own: KeyPair | None) -> list[str]:
        """Return the elements of the chain; SecretError if there is none."""


class Held(NamedTuple):
    """The certificate in use."""

    issued: Issued
    schedule: Schedule
    issuer: str  #: address of the CA

    @property
    def pair(self) -> KeyPair:
        """Chain and key."""
        return KeyPair(self.issued.chain, self.issued.key)


class Workload:
    """The workload's certificate."""

    def __init__(
        self,
        rotation: RotationSettings,
        signer: Signer,
        *,
        make_csr: Callable[[], Awaitable[Csr]],
        renewed: Callable[[Issued | None, Issued], None],
        rng: Callable[[], float],
        clock: Clock,
    ) -> None:
        """Nobody is asked before somebody needs it.

        Args:
            rotation: when to renew.
            signer: the CA.
            make_csr: returns a new key and its CSR.
            renewed: told of each new certificate, and of the one before.
            rng: chance, in [0, 1).
            clock: tells the time.
        """
        self.held: Held | None = None
        self.problem = ""  #: why the last attempt failed; empty if it did not
        self._rotation = rotation
        self._signer = signer
        self._make_csr = make_csr
        self._renewed = renewed
        self._rng = rng
        self._clock = clock
        self._failures = 0
        self._retry_at = 0.0  #: after a failure, when to try again by ourselves
        self._is_wanted = False
        self._is_asking = False
        self._wake = asyncio.Event()
        self._attempt: asyncio.Future[SecretError | None] | None = None

    async def get(self) -> Issued:
        """Return the certificate, a new one if there is none or it has expired.

        Raises:
            SecretError: the CA has issued none.
        """
        held = self._good()
        if held:
            return held.issued
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_future()
            if not self._is_asking:
                self._is_wanted = True
                self._wake.set()
        # A shield: who no longer waits must not end the attempt for others.
        problem = await asyncio.shield(self._attempt)
        if problem:
            raise SecretError(str(problem)) from problem
        assert self.held  # noqa: S101 - what the attempt was for
        return self.held.issued

    def renew(self) -> None:
        """Have the certificate renewed now, if there is one."""
        if self.held:
            self._is_wanted = True
            self._wake.set()

    def seconds_left(self) -> float | None:
        """Return how long the certificate lasts, negative once it has expired."""
        return self.held.schedule.seconds_left(self._clock.now()) if self.held else None

    def seconds_to_renewal(self) -> float | None:
        """Return the time to the next attempt; none if there is nothing to renew."""
        if self.held is None:
            return None
        now = self._clock.now()
        wait = self._retry_at - now.running if self._failures else 0.0
        return max(self.held.schedule.seconds_to_renewal(now), wait)

    async def run(self) -> None:
        """Renew, for ever."""
        while True:
            await self._until_needed()
            self._is_wanted, self._is_asking = False, True
            try:
                held = await self._obtain()
            except SecretError as error:
                self._fail(error)
                self._settle(error)
            except Exception as error:  # a defect: it must not take what is still good down
                log.exception("cannot renew the certificate")
                problem = SecretError(f"failed to generate workload certificate: {error!r}")
                self._fail(problem)
                self._settle(problem)
            else:
                before, self.held = self.held, held
                self._failures, self.problem = 0, ""
                self._settle(None)
                self._report(held)
                self._renewed(before.issued if before else None, held.issued)

    def _good(self) -> Held | None:
        held = self.held
        return None if held is None or held.schedule.is_expired(self._clock.now()) else held

    async def _until_needed(self) -> None:
        while not self._is_wanted:
            left = self.seconds_to_renewal()
            if left is not None and left <= 0:
                return
            await self._clock.wait(self._wake, float("inf") if left is None else left)
            self._wake.clear()

    async def _obtain(self) -> Held:
        """Return a new certificate; SecretError if there is none, or only a bad one."""
        csr = await self._make_csr()
        good = self._good()
        try:
            chain = await self._signer.sign(csr.request, good.pair if good else None)
            received = self._clock.now()
            issued = authority.take_issued(
                csr, chain, now=received.wall, has_valid=self._good() is not None
            )
            roots = usable_roots(issued.roots, self._signer.address)
        except (SecretError, ValueError) as error:
            raise SecretError(f"failed to generate workload certificate: {error}") from error
        plan = schedule(
            issued.leaf.not_after,
            received,
            grace_ratio=self._rotation.grace_ratio,
            jitter_ratio=self._rotation.jitter_ratio,
            rng=self._rng,
        )
        return Held(issued._replace(roots=roots), plan, self._signer.address)

    def _settle(self, outcome: SecretError | None) -> None:
        """Tell those who wait how the attempt went."""
        self._is_asking = False
        attempt, self._attempt = self._attempt, None
        if attempt:
            attempt.set_result(outcome)

    def _fail(self, error: SecretError) -> None:
        self._failures += 1
        self.problem = str(error)
        delay = retry_delay(self._failures, self._rng)
        now = self._clock.now()
        self._retry_at = now.running + delay
        if self.held is None:
            return  # whoever asked knows, and asks again
        left = self.held.schedule.seconds_left(now)
        alarming = self.held.schedule.is_alarming(now)
        log.log(
            logging.ERROR if alarming else logging.WARNING,
            "certificate not renewed certificate_left_seconds=%.0f retry_in_seconds=%.1f reason=%r",
            left,
            delay,
            self.problem,
        )

    def _report(self, held: Held) -> None:
        log.info(
            "certificate issued by=%s serial=%x lifetime_seconds=%.0f renewal_in_seconds=%.0f",
            held.issuer,
            held.issued.leaf.serial,
            held.schedule.expires - held.schedule.received.wall,
            held.schedule.renew_running - held.schedule.received.running,
        )
