"""Has a gRPC server listen on a Unix socket, as Envoy's bootstrap expects it.

Source: xds-identity-dns.md section 1.3.
"""

import errno
import logging
import os
import socket
from contextlib import suppress
from typing import Final

import grpc

from agent.errors import SystemRefusedError

log = logging.getLogger(__name__)

DIRECTORY_MODE: Final = 0o750
SOCKET_MODE: Final = 0o666
MAX_PATH_BYTES: Final = 107
FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


async def listen(server: grpc.aio.Server, path: str) -> None:
    """Start a server on a socket that anyone in the container may use; what is there goes.

    gRPC removes the socket when the server stops.

    Raises:
        SystemRefusedError: the socket cannot be made; says why.
    """
    try:
        _make_way(path)
        _try_out(path)
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        os.chmod(path, SOCKET_MODE)  # noqa: PTH101 - pathlib costs time at start
    except (RuntimeError, OSError) as error:
        raise SystemRefusedError(f"{path}: cannot listen there: {_reason(path, error)}") from error
    log.info("listening socket=%s", path)


def _make_way(path: str) -> None:
    """Remove a stale socket and make its directory; only the former is vital."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - pathlib costs time at start
    try:
        os.makedirs(os.path.dirname(path) or ".", DIRECTORY_MODE, exist_ok=True)  # noqa: PTH103, PTH120 - as above
    except OSError as error:
        log.warning("cannot make directory of socket=%s reason=%r", path, str(error))


def _try_out(path: str) -> None:
    """Bind a socket there, and remove it: gRPC would not say what is wrong, and log its own line.

    Raises:
        OSError: it cannot be bound.
    """
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
    os.unlink(path)  # noqa: PTH108 - as above


def _reason(path: str, error: Exception) -> str:
    """Return what is wrong, and what to do about it."""
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        return f"expected a path of at most {MAX_PATH_BYTES} bytes; shorten configPath"
    number = error.errno if isinstance(error, OSError) else None
    if number is None:
        return str(error)
    reason = os.strerror(number).lower()
    if number == errno.EISDIR:
        return f"{reason}; remove it, or what mounts it"
    if number in FULL:
        return f"{reason}; free space, or inodes, in its directory"
    return f"{reason}; its directory must be one that user {os.geteuid()} may write to"
