"""A namespace whose name server never answers."""

from pathlib import Path
from typing import Final

#: Whatever is sent to a neighbour that is not there is lost.
SILENT: Final = """
ip link add here type veth peer name there
ip address add 192.0.2.1/24 dev here
for link in lo here there; do ip link set $link up; done
ip neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev here
mount --bind "$0" /etc/resolv.conf
exec "$@"
"""
#: Minutes until the resolver gives up.
OPTIONS: Final = "nameserver 192.0.2.2\noptions timeout:30 attempts:5\n"


def without_answers(directory: Path) -> tuple[str, ...]:
    """Return what comes before a command that is to run there; root alone can."""
    path = directory / "resolv.conf"
    path.write_text(OPTIONS)
    return ("unshare", "--mount", "--net", "sh", "-ec", SILENT, str(path))
