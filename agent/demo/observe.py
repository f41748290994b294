"""What the demo reads, as values: HTTP replies and Envoy's counters."""

import json
from typing import Final, NamedTuple

#: CAP_NET_ADMIN and CAP_SYS_ADMIN. Linux, capability.h.
NEEDED_CAPABILITIES: Final = 1 << 12 | 1 << 21


class Reply(NamedTuple):
    """One answer to client.py; status 0 and an error where there was none."""

    status: int
    connection: str  #: the `connection` header, lower case; "" without one
    body: str
    error: str

    @property
    def peer(self) -> str:
        """Return who the application of server.py says had connected to it; "" if it did not."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return ""
        return str(found.get("peer", "")) if isinstance(found, dict) else ""

    def __str__(self) -> str:
        """Return the status, or what went wrong instead."""
        return self.error or str(self.status)


def parse_reply(line: str) -> Reply:
    """Return what client.py wrote about one request; an unreadable line is an error reply."""
    try:
        found = json.loads(line)
    except ValueError:
        return Reply(0, "", "", error=f"no reply: {line!r}")
    headers = found.get("headers", {})
    return Reply(
        status=found.get("status", 0),
        connection=headers.get("connection", "").lower(),
        body=found.get("body", ""),
        error=found.get("error", ""),
    )


def accepted(stats: str, port: int) -> int:
    """Return how many connections Envoy has accepted on its listeners of a port.

    Args:
        stats: the text of Envoy's `/stats`; lines such as
            `listener.0.0.0.0_15006.downstream_cx_total: 2`, or `listener.[__]_15006...` for `::`.
        port: the listeners' port.
    """
    total = 0
    for line in stats.splitlines():
        name, _, value = line.partition(": ")
        listener = name.removeprefix("listener.").removesuffix(".downstream_cx_total")
        if name == f"listener.{listener}.downstream_cx_total" and listener.endswith(f"_{port}"):
            total += int(value)
    return total


def privileges(status: str) -> str:
    """Return who a process is, uid:gid, and what it may do beyond that.

    Args:
        status: the text of its `/proc/<pid>/status`.
    """
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    uid, gid = (",".join(sorted(set(fields[name].split()))) for name in ("Uid", "Gid"))
    sets = {int(fields[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")}
    allowed = "no capabilities" if sets == {0} else f"capabilities {max(sets):#x}"
    return f"{uid}:{gid}, {allowed}"


def can_make_namespaces(status: str) -> bool:
    """Return whether a process may do what the demo needs; see `privileges`."""
    effective = int(status.partition("CapEff:")[2].split()[0], 16)
    return effective & NEEDED_CAPABILITIES == NEEDED_CAPABILITIES
