"""When a drain is over, and how Envoy is asked for one.

Source: bootstrap.md sections 6.4 and 6.6; status-lifecycle.md section 9.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from agent.reader import Reader, parse_bool, parse_duration

CONNECTIONS_TARGET: Final = "/stats?usedonly&filter=downstream_cx_active$"
MAX_FAILURES: Final = 5  #: consecutive ones, after which a drain counts as over


class DrainSettings(NamedTuple):
    """How long shutdown may take."""

    #: From the drain to the end, where connections are not counted. terminationDrainDuration.
    termination_seconds: float = 5.0
    #: Wait before connections are first counted. MINIMUM_DRAIN_DURATION.
    minimum_seconds: float = 5.0
    #: End once nothing is connected. EXIT_ON_ZERO_ACTIVE_CONNECTIONS.
    exit_on_idle: bool = False
    #: Envoy asked with SIGTERM is killed after this long.
    stop_seconds: float = 5.0
    #: The same after a second signal.
    hurried_stop_seconds: float = 0.5
    #: Listeners whose connections are not the application's, by port.
    ignored_ports: tuple[int, ...] = (15021, 15090)


def parse_drain(
    read: Reader, *, termination_seconds: float, ignored_ports: tuple[int, ...]
) -> DrainSettings:
    """Return the drain branch; unusable values are noted on the reader."""
    return DrainSettings(
        termination_seconds=termination_seconds,
        minimum_seconds=read.take("MINIMUM_DRAIN_DURATION", parse_duration, default=5.0),
        exit_on_idle=read.take("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", parse_bool, default=False),
        ignored_ports=ignored_ports,
    )


def drain_target(*, is_sidecar: bool) -> str:
    """Return the admin request that starts a drain.

    `skip_exit` always: inbound keeps accepting, and saying goodbye, until the agent ends Envoy.
    A sidecar's outbound listeners go on, so that the application can finish its work.
    """
    scope = "inboundonly&" if is_sidecar else ""
    return f"/drain_listeners?{scope}graceful&skip_exit"


def active_connections(
    stats: str, ignored_ports: tuple[int, ...], warn: Callable[[str], None]
) -> int:
    """Return how many connections the application's listeners have, -1 for an empty answer.

    Args:
        stats: lines `name: value` as Envoy's admin prints them.
        ignored_ports: health and metrics listeners, whatever address they are bound to.
        warn: told of each line that is no stat.
    """
    if not stats.strip():
        return -1
    total = 0
    for line in stats.splitlines():
        name, separator, value = line.partition(":")
        if not separator or not value.strip().isdecimal():
            warn(line)
        elif _is_application_listener(name, ignored_ports):
            total += int(value)
    return total


def _is_application_listener(name: str, ignored_ports: tuple[int, ...]) -> bool:
    if not name.startswith("listener.") or "worker_" in name:
        return False
    if name.startswith(("listener.admin.", "listener.envoy_internal_")):
        return False
    address = name.removeprefix("listener.").removesuffix(".downstream_cx_active")
    return not any(address.endswith(f"_{port}") for port in ignored_ports)
