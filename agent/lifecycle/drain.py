"""How Envoy is asked for a drain, and what shows that nothing goes on any more.

Gauges alone would end a drain in a lull: between two short requests nothing is active either. So
what began is counted too, and nothing may have begun for a second when nothing is active. What has
been open for long and then ends is noticed at once.

Source: bootstrap.md sections 6.4 and 6.6; status-lifecycle.md section 9.5; cases.md D5 to D9.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from agent.lifecycle.plan import Condition

CONNECTIONS_TARGET: Final = "/stats?usedonly&filter=downstream_cx_(active|total)$"
REQUESTS_TARGET: Final = "/stats?usedonly&filter=downstream_(cx|rq)_(active|total)$"
#: Suffixes of the statistics that a condition needs; Envoy does not keep them unless told to.
STATISTICS: Final[Mapping[Condition, tuple[str, ...]]] = {
    "duration": (),
    "connections": ("downstream_cx_active", "downstream_cx_total"),
    "requests": (
        *("downstream_cx_active", "downstream_cx_total"),
        *("downstream_rq_active", "downstream_rq_total"),
    ),
    "app": ("downstream_cx_active", "downstream_rq_active"),
}
#: Of HTTP that the mesh serves itself: Envoy's admin port and the bootstrap's own listeners.
OWN_HTTP: Final = ("admin", "agent", "stats", "secure_stats", "secure_merged_stats")
#: Of the listener that takes the mesh's own tunnels (HBONE) apart: a tunnel is kept open for later
#: connections, so it is not what goes on; those arrive at the listener below.
TUNNELS: Final = "connect_terminate"
TUNNELLED: Final = "listener.envoy_internal_main_internal."
MAX_FAILURES: Final = 5  #: consecutive looks without an answer, after which a drain is over
#: For so long nothing may have begun.
QUIET_SECONDS: Final = 1.0
#: Looks take a sixth of the time at most, so that they do not keep a busy Envoy from its work.
PAUSE_PER_LOOK: Final = 5.0
SHORTEST_PAUSE_SECONDS: Final = 0.025
LONGEST_PAUSE_SECONDS: Final = 1.0


class Activity(NamedTuple):
    """What goes on in the application's listeners."""

    active: int  #: connections or requests now
    begun: int = 0  #: how many there ever were


class Watch(NamedTuple):
    """What the looks so far have shown."""

    begun: int = 0
    began_at: float = 0.0  #: when something was last seen to have begun


def drain_target(*, is_sidecar: bool) -> str:
    """Return the admin request that starts a drain.

    `skip_exit` always: inbound keeps accepting, and saying goodbye, until the agent ends Envoy.
    A sidecar's outbound listeners go on, so that the application can finish its work.
    """
    scope = "inboundonly&" if is_sidecar else ""
    return f"/drain_listeners?{scope}graceful&skip_exit"


def count_connections(
    stats: str, own_ports: tuple[int, ...], warn: Callable[[str], None]
) -> Activity | None:
    """Return the connections of the application's listeners, None for an empty answer.

    Args:
        stats: lines `name: value` as Envoy's admin port prints them.
        own_ports: health and metrics listeners, whatever address they are bound to.
        warn: told of each line that is no stat.
    """
    if not stats.strip():
        return None
    active = begun = 0
    for name, value in _values(stats, warn):
        if _is_application_listener(name, own_ports):
            active += value * name.endswith("_cx_active")
            begun += value * name.endswith("_cx_total")
    return Activity(active, begun)


def count_requests(
    stats: str, own_ports: tuple[int, ...], warn: Callable[[str], None]
) -> Activity | None:
    """Return the requests under way, None for an empty answer; arguments as count_connections.

    A connection that carries no HTTP is one request for as long as it is open, and so is one that
    was upgraded (WebSocket) or a tunnel that a client asked for (CONNECT): somebody waits for them,
    and the deadline bounds the wait. One that carries HTTP counts by its requests. What comes
    through the mesh's own tunnels counts by the same rules, the tunnels themselves do not.
    """
    connections = count_connections(stats, own_ports, warn)
    if connections is None:
        return None
    active, begun, carrying = 0, connections.begun, connections.active
    for name, value in _values(stats, lambda _: None):
        scope, _, counter = name.rpartition(".downstream_")
        manager = scope.removeprefix("http.")
        if name.startswith(TUNNELLED) and "worker_" not in name:
            carrying += value * (counter == "cx_active")
        elif manager != scope and manager not in OWN_HTTP:
            active += value * (counter == "rq_active" and manager != TUNNELS)
            begun += value * (counter == "rq_total")
            carrying -= value * (counter == "cx_active")
    return Activity(active + max(carrying, 0), begun)


def see(watch: Watch, activity: Activity, now: float) -> tuple[Watch, bool]:
    """Return what is known after a look, and whether the drain is over.

    Args:
        watch: what was known before.
        activity: what the look showed.
        now: monotonic seconds.
    """
    began_at = now if activity.begun > watch.begun else watch.began_at
    is_quiet = not activity.begun or now - began_at >= QUIET_SECONDS
    return Watch(activity.begun, began_at), not activity.active and is_quiet


def pause_seconds(look_seconds: float) -> float:
    """Return how long to wait after a look that took so long."""
    return min(max(PAUSE_PER_LOOK * look_seconds, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)


def _values(stats: str, warn: Callable[[str], None]) -> Iterator[tuple[str, int]]:
    """Yield names and values; a name may hold colons, of an IPv6 address."""
    for line in stats.splitlines():
        name, separator, value = line.rpartition(":")
        if separator and value.strip().isdecimal():
            yield name, int(value)
        else:
            warn(line)


def _is_application_listener(name: str, own_ports: tuple[int, ...]) -> bool:
    if not name.startswith("listener.") or "worker_" in name:
        return False
    if name.startswith(("listener.admin.", "listener.envoy_internal_")):
        return False
    address = name.removeprefix("listener.").rpartition(".downstream_")[0]
    return not any(address.endswith(f"_{port}") for port in own_ports)
