"""Has the control plane answer Envoy, or what Envoy has accepted before: what all streams share.

What costs an import is imported by the first stream (session/run.py).

Source: xds-identity-dns.md section 2.11; cases X10 and X11.
"""

import asyncio
import itertools
import logging
import time
from typing import TYPE_CHECKING, Final

from agent.backoff import backoff_seconds
from agent.xds.client import ControlPlane
from agent.xds.discovery import Kind
from agent.xds.server import Downstream
from agent.xds.settings import CacheSettings
from agent.xds.upstream.run import UpstreamBackend

if TYPE_CHECKING:
    from agent.xds.cache.files import Kept
    from agent.xds.cache.process import Recorder
    from agent.xds.cache.session.run import CachedSession

log = logging.getLogger(__name__)

SERVING: Final = "xds_serving_cached"
#: One that refuses, or ends each stream, need not be waited for as long as one that may yet answer:
#: a pod that starts must not stand still, and gets the control plane's as soon as it is back.
FAILING_SECONDS: Final = 2.0
#: Before the control plane is dialled again: at most this, doubled each time.
FIRST_WAIT_SECONDS: Final = 1.0
LONGEST_WAIT_SECONDS: Final = 30.0
FULL_JITTER: Final = 1.0


class CachingBackend:
    """Has the control plane answer Envoy, or what it has accepted before; for all sessions."""

    def __init__(
        self,
        settings: CacheSettings,
        control_plane: ControlPlane,
        upstream: UpstreamBackend,
    ) -> None:
        self.settings = settings
        self.upstream = upstream
        self._recorder: Recorder | None = None
        self.numbers = itertools.count(1)
        self._control_plane = control_plane
        self._unanswered_since: float | None = None
        self._served_at: float | None = None  #: Unix seconds of what Envoy was served instead
        upstream.count(SERVING, 0)

    async def open(self, kind: Kind, downstream: Downstream, number: int) -> "CachedSession":
        """Return a session for a stream of Envoy."""
        # Not before Envoy is there, which from now on waits for the control plane.
        from agent.xds.cache.process import Recorder  # noqa: PLC0415 - see above
        from agent.xds.cache.session.run import CachedSession  # noqa: PLC0415 - as above

        if self._recorder is None:
            self._recorder = Recorder(self.settings.directory)
        return CachedSession(self, self._recorder, kind, downstream, number)

    async def close(self) -> None:
        """Keep for good what has come."""
        if self._recorder is not None:
            await self._recorder.close()

    def problem(self) -> str | None:
        """Return what is wrong now, for people: that Envoy has, or would have, something old."""
        problems = []
        if self._served_at is not None:
            age = max(time.time() - self._served_at, 0)
            problems.append(f"serving cached configuration that last changed {age:.0f}s ago")
        if self._recorder and self._recorder.problem:
            problems.append(f"not keeping what Envoy accepts: {self._recorder.problem}")
        return "; ".join(problems) or None

    def deadline(self) -> float:
        """Return when, in the loop's time, a stream begun now has failed for long enough."""
        if self._unanswered_since is None:
            self._unanswered_since = asyncio.get_running_loop().time()
        return self._unanswered_since + min(self.settings.after_seconds, FAILING_SECONDS)

    def answered(self) -> None:
        """Take note of a response of the control plane."""
        self._unanswered_since = None
        if self._served_at is not None:
            self._served_at = None
            self.upstream.count(SERVING, -1)
            log.info("control plane has taken over from the cache")

    def serves(self, kept: "Kept") -> None:
        """Say that Envoy is served what was kept."""
        if self._served_at is None:
            self.upstream.count(SERVING, 1)
        self._served_at = kept.at
        log.warning(
            "no answer from the control plane, serving cached configuration age_seconds=%.0f "
            "resources=%d bytes=%d",
            max(time.time() - kept.at, 0),
            kept.resources,
            kept.size,
        )

    async def dial(self) -> None:
        """Return once the control plane takes a connection, for the next stream to use."""
        for attempt in itertools.count(1):
            await asyncio.sleep(
                backoff_seconds(
                    attempt,
                    self.upstream.rng,
                    first=FIRST_WAIT_SECONDS,
                    longest=LONGEST_WAIT_SECONDS,
                    spread=FULL_JITTER,
                )
            )
            try:
                if await self._control_plane.reach():
                    log.info("control plane can be reached address=%s", self._control_plane.address)
                    return
            except (OSError, ValueError) as error:
                log.debug("! cannot be dialled reason=%r", str(error))
