"""The application's listening sockets, from /proc."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from agent.lifecycle.listeners import listening, socket_inode

TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


class ApplicationListeners:
    """Tells the application's sockets from the mesh's own, each of which is looked at once."""

    def __init__(self, own_ports: Collection[int]) -> None:
        """Remember what is the mesh's own wherever its processes cannot be looked into."""
        self._own_ports = own_ports
        self._known: dict[int, bool] = {}  #: whether a socket is the application's, by inode

    def ports(self, own_pids: Collection[int]) -> list[int]:
        """Return the ports on which anybody but these processes listens, sorted.

        A socket whose owner cannot be made out counts as the application's.
        """
        found = {inode: port for table in TABLES for inode, port in _rows(table).items()}
        if found.keys() - self._known.keys():
            own = {inode for pid in own_pids for inode in _sockets(pid)}
            self._known = {
                inode: inode not in own and port not in self._own_ports
                for inode, port in found.items()
            }
        return sorted({port for inode, port in found.items() if self._known[inode]})


def _rows(table: str) -> dict[int, int]:
    try:
        with Path(table).open(encoding="ascii") as lines:
            return listening(lines)
    except OSError:
        return {}  # a kernel without this family


def _sockets(pid: int) -> Iterator[int]:
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # gone, or not ours to look into
        return
    for descriptor in descriptors:
        try:
            inode = socket_inode(str(descriptor.readlink()))
        except OSError:  # closed meanwhile
            continue
        if inode is not None:
            yield inode
