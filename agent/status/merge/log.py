"""What goes wrong with a scrape is counted, and told once in a while.

Source: status-lifecycle.md section 4.9.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from agent.http.client import HttpError
from agent.metrics import Family, Metrics
from agent.status.pace import Pace
from agent.status.scrape import Target

log = logging.getLogger(__name__)

FAILED: Final = "scrape_failures_total"
DROPPED: Final = "scrape_dropped_total"
DROPPED_FAMILY: Final = Family(
    "counter", "The total number of lines left out of merged pages, by source and reason."
)


class Account:
    """Keeps it; a source is `envoy`, `application` or `agent`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._pace = Pace()
        metrics.describe(DROPPED, DROPPED_FAMILY)

    def began(self) -> None:
        """Count a scrape."""
        self._metrics.count("scrapes_total")

    def missing(self, target: Target, error: Exception, *, source: str) -> None:
        """Note that a page is not there; its query may be the caller's, and is not told."""
        path = target.path.partition("?")[0]
        if self._is_due(f"{source} {target.port} {path} is missing"):
            reason = error.reason if isinstance(error, HttpError) else error
            # Quoted, so that a path with line breaks cannot forge log lines.
            log.warning(
                "metrics are missing source=%s port=%d path=%r reason=%s",
                source,
                target.port,
                path,
                reason,
            )
        self._failed(source)

    @contextmanager
    def reading(self, source: str) -> Iterator[None]:
        """Note what breaks off a page in the block; it counts, too, that the caller leaves."""
        is_whole = False
        try:
            yield
            is_whole = True
        except (HttpError, ValueError) as error:
            if self._is_due(f"{source} breaks off"):
                reason = error.reason if isinstance(error, HttpError) else error
                log.warning("metrics break off source=%s reason=%s", source, reason)
        finally:
            if not is_whole:
                self._failed(source)

    def odd(self, name: str, text: str) -> None:
        """Tell that a time limit cannot be read."""
        if self._is_due(name):
            log.warning("%s=%r: expected seconds; no time limit", name, text)

    def dropped(self, source: str) -> Callable[[str], None]:
        """Return what counts lines that are left out, by reason."""
        return lambda reason: self._metrics.count(DROPPED, type=source, reason=reason)

    def own(self) -> bytes:
        """Return the agent's metrics, nothing where they cannot be told."""
        try:
            # A label may come from a variable or a file name that is no UTF-8.
            return self._metrics.render().encode(errors="replace")
        except Exception:  # what is computed at scrape is other subjects' code
            if self._is_due("agent"):
                log.exception("own metrics could not be rendered")
            self._failed("agent")
            return b""

    def _failed(self, source: str) -> None:
        self._metrics.count(FAILED, type=source)

    def _is_due(self, about: str) -> bool:
        return self._pace.is_due(about, time.monotonic())
