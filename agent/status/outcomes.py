"""How each of the application's probes ended last, for whoever looks.

The kubelet takes 200 to 399 for a success, and tells nobody of what it saw but in events.
"""

from typing import Final, NamedTuple

SUCCESS: Final = range(200, 400)
#: Kept of what an application says to a probe that fails: its first line, cut.
REASON_CHARACTERS: Final = 200


class Outcome(NamedTuple):
    """How a probe ended last; times are Unix seconds."""

    status: int
    reason: str  #: why it failed, in our words or in the application's; may be empty
    at: float
    seconds: float  #: that it took
    since: float  #: when it first ended so, of the times in a row
    times: int  #: in a row

    @property
    def is_success(self) -> bool:
        """Return whether the kubelet is content."""
        return self.status in SUCCESS


def outcome_after(
    before: Outcome | None, status: int, reason: str, *, at: float, seconds: float
) -> Outcome:
    """Return what is known of a probe after it was run once more."""
    outcome = Outcome(status, reason, at, seconds, at, 1)
    if before is None or before.is_success is not outcome.is_success:
        return outcome
    return outcome._replace(since=before.since, times=before.times + 1)


def failure_reason(status: int, reason: str, body: bytes) -> str:
    """Return why a probe failed: our reason, else the first line of the answer, if it has one."""
    if reason or status in SUCCESS:
        return reason
    text = body[: 4 * REASON_CHARACTERS].decode("utf-8", "replace").strip()
    return text.partition("\n")[0].strip()[:REASON_CHARACTERS]
