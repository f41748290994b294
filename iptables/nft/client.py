"""Asks the kernel whether tables of ours are there, over a netlink socket."""

import _socket
from typing import Final

from iptables.netlink import ERROR, decode
from iptables.nft.netlink import get_table
from iptables.nft.text import CHAINS, table_name

NETLINK_NETFILTER: Final = 12
LARGEST_DATAGRAM: Final = 8192
TIMEOUT_SECONDS: Final = 5.0


def has_tables() -> bool:
    """Return whether any of our nftables tables is there.

    It is not where the kernel has no nftables, or does not tell: then neither do the tools, which
    say why.
    """
    try:
        return any(_has_table(table_name(table)) for table in CHAINS)
    except OSError:
        return False


def _has_table(name: str) -> bool:
    sock = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, NETLINK_NETFILTER)
    try:
        sock.settimeout(TIMEOUT_SECONDS)
        sock.send(get_table(name))
        return any(message.kind != ERROR for message in decode(sock.recv(LARGEST_DATAGRAM)))
    finally:
        sock.close()
