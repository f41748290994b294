"""Who still listens in the pod's network namespace, as /proc/net/tcp tells it without any right.

Source: proc(5); the kernel's net/ipv4/tcp_ipv4.c, which lists listening sockets before all others.
"""

from collections.abc import Iterable
from typing import Final

LISTEN: Final = "0A"  #: enum tcp_state
#: Of a row's columns: local address, state and inode.
ADDRESS, STATE, INODE = 1, 3, 9


def listening(table: Iterable[str]) -> dict[int, int]:
    """Return the port of each listening socket by its inode.

    Args:
        table: lines of /proc/net/tcp or tcp6; no more are taken than needed, because connections
            may be many.
    """
    found: dict[int, int] = {}
    for number, row in enumerate(table):
        columns = row.split()
        if number == 0:  # the heading
            continue
        if columns[STATE] != LISTEN:
            break
        found[int(columns[INODE])] = int(columns[ADDRESS].rpartition(":")[2], 16)
    return found


def socket_inode(link: str) -> int | None:
    """Return the inode in what /proc/PID/fd/N links to, None where it is no socket."""
    name, _, inode = link.partition(":")
    return int(inode.strip("[]")) if name == "socket" else None
