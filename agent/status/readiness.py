"""Envoy's statistics to a verdict: has it received its configuration, and does it serve?

A verdict is what speaks against it, None for ready. Both questions are asked until the answer was
yes once: later on, the probe's own way through Envoy is the proof, and a busy admin port is not
a reason to lose traffic (cases.md R2, R3).

Source: status-lifecycle.md section 6.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

#: The filter's characters are sent as they are (6.4).
CONFIG_TARGET: Final = (
    "/stats?usedonly&filter=^(cluster_manager\\.cds|listener_manager\\.lds)"
    "\\.(update_success|update_rejected)$"
)
LIVE_TARGET: Final = "/stats?usedonly&filter=^(server\\.state|listener_manager\\.workers_started)"
#: The same where listeners count, too.
GATE_TARGET: Final = f"{LIVE_TARGET[:-1]}|listener_manager\\.total_listeners_active)"

CDS: Final = "cluster_manager.cds"
LDS: Final = "listener_manager.lds"
STATE: Final = "server.state"
WORKERS: Final = "listener_manager.workers_started"
LISTENERS: Final = "listener_manager.total_listeners_active"
LIVE: Final = 0
STATES: Final = {1: "DRAINING", 2: "PRE_INITIALIZING", 3: "INITIALIZING"}
FAILED: Final = "failed to get readiness stats: "
ISTIOD: Final = "XDS server (is Istiod running?)"
LOCAL: Final = "AGENT_LOCAL_XDS"
CONFIG: Final = "envoy_config"
LIFE: Final = "envoy_live"
GATE: Final = "envoy_listeners"


class Shortfall(NamedTuple):
    """Why the pod is not ready."""

    check: str  #: the first that failed
    reason: str
    missing: tuple[str, ...] = ()  #: statistics of Envoy's that are not as they must be


def judge_config(stats: str, source: str = ISTIOD) -> Shortfall | None:
    """Return why Envoy's configuration is not complete, None if it is.

    Args:
        stats: what Envoy answers to CONFIG_TARGET; a counter that is not there is 0.
        source: where the configuration comes from, ISTIOD or LOCAL.
    """
    try:
        cds, cds_rejected, lds, lds_rejected = (
            _value(stats, f"{manager}.{counter}") or 0
            for manager in (CDS, LDS)
            for counter in ("update_success", "update_rejected")
        )
    except ValueError as error:
        return Shortfall(CONFIG, str(error))
    if cds and lds:
        return None
    if not cds and not lds:
        text = f"config not received from {source}"
    elif cds_rejected or lds_rejected:
        text = "config received from XDS server, but was rejected"
    else:
        text = "config not fully received from XDS server"
    return Shortfall(
        CONFIG,
        f"{text}: cds updates: {cds} successful, {cds_rejected} rejected; "
        f"lds updates: {lds} successful, {lds_rejected} rejected",
        tuple(f"{name}.update_success" for name, count in ((CDS, cds), (LDS, lds)) if not count),
    )


def judge_live(stats: str, min_listeners: int = 0) -> Shortfall | None:
    """Return why Envoy does not serve yet, None if it does.

    Args:
        stats: what Envoy answers to LIVE_TARGET, or GATE_TARGET where listeners count.
        min_listeners: as many must be active.
    """
    try:
        state = _value(stats, STATE)
        workers = _value(stats, WORKERS)
        listeners = _value(stats, LISTENERS) or 0
    except ValueError as error:
        return Shortfall(LIFE, FAILED + str(error))
    for name, value in ((STATE, state), (WORKERS, workers)):
        if value is None:
            return Shortfall(LIFE, f"{FAILED}{name} is not yet updated: {stats}", (name,))
    if state != LIVE:
        name = STATES.get(state or 0, "UNKNOWN")
        return Shortfall(LIFE, f"server is not live, current state is: {name}", (STATE,))
    if workers != 1:
        return Shortfall(LIFE, "workers have not yet started", (WORKERS,))
    if listeners < min_listeners:
        reason = f"listeners active: {listeners}, expected at least {min_listeners}"
        return Shortfall(GATE, reason, (LISTENERS,))
    return None


class Standing(NamedTuple):
    """Readiness as it was last found."""

    shortfall: Shortfall | None
    #: When it last became ready, or stopped being so; monotonic seconds.
    since: float
    #: What last spoke against it, and when; None if nothing ever did.
    last: tuple[Shortfall, float] | None = None


def standing_after(standing: Standing | None, shortfall: Shortfall | None, now: float) -> Standing:
    """Return the standing after a check; `now` is in monotonic seconds."""
    last = (shortfall, now) if shortfall else standing and standing.last
    if standing and (standing.shortfall is None) is (shortfall is None):
        return Standing(shortfall, standing.since, last)
    return Standing(shortfall, now, last)


def document(
    standing: Standing,
    details: Mapping[str, str],
    control_plane: object,
    *,
    now: float,
    epoch: float,
) -> dict[str, Any]:
    """Return all that is known, as JSON has it; times are Unix seconds.

    Args:
        standing: of readiness.
        details: what else is wrong, by what has it.
        control_plane: its address and state as JSON; None where there is none.
        now: monotonic seconds.
        epoch: Unix seconds at the beginning of monotonic time.
    """
    shortfall, last = standing.shortfall, standing.last
    return {
        "ready": shortfall is None,
        "since": round(standing.since + epoch, 3),
        "seconds": round(now - standing.since, 3),
        "check": shortfall and shortfall.check,
        "reason": shortfall and shortfall.reason,
        "missing": list(shortfall.missing) if shortfall else [],
        "last_error": last
        and {"check": last[0].check, "reason": last[0].reason, "time": round(last[1] + epoch, 3)},
        "details": dict(details),
        "control_plane": control_plane,
    }


def _value(stats: str, name: str) -> int | None:
    """Return a statistic, None if there is none of that name."""
    line = next((line for line in stats.splitlines() if line.startswith(name)), None)
    if line is None:
        return None
    parts = line.split(":")
    if len(parts) != 2:  # noqa: PLR2004 -- name and value
        raise ValueError(f"envoy stat {name} missing separator. line:{line}")
    text = parts[1].strip()
    if not (text.isascii() and text.isdigit()):
        raise ValueError(
            f"failed parsing Envoy stat {name} (error: expected a whole number) line: {line}"
        )
    return int(text)
