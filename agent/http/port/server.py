"""Binds a port on every address, and says who has it where that is refused.

Source: status-lifecycle.md section 3.1.
"""

import errno
import os
import socket

from agent.errors import SystemRefusedError


def bind(port: int, name: str) -> socket.socket:
    """Return a socket on all addresses, of IPv4 alone where the kernel has no IPv6.

    Raises:
        SystemRefusedError: the port is taken, or may not be used; `name` says who needs it.
    """
    try:
        try:
            return _bound(socket.AF_INET6, "::", port)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
            return _bound(socket.AF_INET, "0.0.0.0", port)  # noqa: S104 -- specified, 3.1
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        hint = f"; find its holder with 'ss -ltnp sport = :{port}'"
        raise SystemRefusedError(
            f"port {port}, needed by the {name}: {reason}"
            + (hint if error.errno == errno.EADDRINUSE else "")
        ) from error


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((host, port))
        sock.listen()  # now, so that a taken port is known now
    except BaseException:
        sock.close()
        raise
    return sock
