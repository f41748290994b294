"""Asks the kernel for addresses, and for changes to them, over a netlink socket.

`_socket` and not `socket`: the latter builds its enumerations first, 3 ms of a start.
"""

import _socket
import errno
import os
from typing import Final

from iptables import netlink
from iptables.errors import SystemRefusedError
from iptables.netlink import InterfaceAddress, Message

ATTEMPTS: Final = 5  # traffic-capture.md section 10 rule 3: again only after an interrupted dump
LARGEST_DATAGRAM: Final = 65536
TIMEOUT_SECONDS: Final = 5.0  # the kernel answers at once; this is against waiting for ever


def interface_addresses() -> list[InterfaceAddress]:
    """Return the addresses of this network namespace: IPv4 by interface index, then IPv6.

    Interfaces that are down are in it, and loopback.

    Raises:
        SystemRefusedError: the kernel could not be asked.
    """
    return addresses_and_alias()[0]


def addresses_and_alias() -> tuple[list[InterfaceAddress], str]:
    """Return the addresses, and the alias of `lo`, '' for none.

    Raises:
        SystemRefusedError: the kernel could not be asked.
    """
    try:
        links, addresses = dump(netlink.dump_links()), dump(netlink.dump_addresses())
    except OSError as error:
        raise _unusable("the addresses of this network namespace cannot be read", error) from error
    found = netlink.interface_addresses(links, addresses, _socket.inet_ntop)
    return found, netlink.loopback_alias(links)


def set_loopback_alias(text: str) -> None:
    """Give `lo` an alias, '' takes it away."""
    if number := change(netlink.set_loopback_alias(text)):
        raise SystemRefusedError(f"giving lo an alias: {reason(number)}")


def add_passthrough_address() -> bool:
    """Put ::6/128 on `lo`; return False if it was there."""
    number = change(netlink.add_passthrough_address())
    if number not in (0, errno.EEXIST):
        raise SystemRefusedError(f"adding ::6/128 to lo: {reason(number)}")
    return number == 0


def remove_passthrough_address() -> bool:
    """Take ::6/128 off `lo`; return False if it was not there."""
    number = change(netlink.remove_passthrough_address())
    if number not in (0, errno.EADDRNOTAVAIL):
        raise SystemRefusedError(f"removing ::6/128 from lo: {reason(number)}")
    return number == 0


def reason(number: int) -> str:
    """Return what an errno of the kernel's answer means, and what to do about it."""
    hint = ": the process needs CAP_NET_ADMIN" if number == errno.EPERM else ""
    return f"{os.strerror(number)}{hint}"


def change(request: bytes) -> int:
    """Send a change that asks for an acknowledgement; return the kernel's errno, 0 for success."""
    try:
        sock = _open()
        try:
            sock.send(request)
            (answer,) = netlink.decode(sock.recv(LARGEST_DATAGRAM))
        finally:
            sock.close()
    except OSError as error:
        raise _unusable("nothing can be asked of the kernel", error) from error
    return netlink.error_number(answer)


def _unusable(what: str, error: OSError) -> SystemRefusedError:
    """Return what a socket that does not work means; for reading, no capability is needed."""
    is_denied = error.errno in (errno.EPERM, errno.EACCES)
    hint = ": a seccomp profile or a security module must allow it" if is_denied else ""
    return SystemRefusedError(f"{what}: netlink: {error.strerror or error}{hint}")


def dump(request: bytes) -> list[Message]:
    """Return all messages of a dump that was not interrupted.

    Raises:
        OSError: the kernel refused, did not answer, or was interrupted each time.
    """
    for _ in range(ATTEMPTS):
        messages, whole = _dump_once(request)
        if whole:
            return messages
    raise OSError(errno.EINTR, "what was read changed during each of five readings")


def _dump_once(request: bytes) -> tuple[list[Message], bool]:
    messages: list[Message] = []
    whole = True
    sock = _open()
    try:
        sock.send(request)
        while True:
            for message in netlink.decode(sock.recv(LARGEST_DATAGRAM)):
                whole = whole and not message.flags & netlink.DUMP_INTERRUPTED
                if message.kind in (netlink.DONE, netlink.ERROR):
                    if number := netlink.error_number(message):
                        raise OSError(number, os.strerror(number))
                    return messages, whole
                messages.append(message)
    finally:
        sock.close()


def _open() -> "_socket.socket":
    sock = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW, _socket.NETLINK_ROUTE)
    sock.settimeout(TIMEOUT_SECONDS)
    return sock
