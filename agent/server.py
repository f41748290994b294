"""Has a gRPC server listen on a Unix socket, as Envoy's bootstrap expects it.

Source: xds-identity-dns.md section 1.3.
"""

import logging
import os
from typing import Final

import grpc

from agent.errors import SystemRefusedError

log = logging.getLogger(__name__)

DIRECTORY_MODE: Final = 0o750
SOCKET_MODE: Final = 0o666


async def listen(server: grpc.aio.Server, path: str) -> None:
    """Start a server on a socket that anyone in the container may use; what is there goes.

    gRPC removes the socket when the server stops.

    Raises:
        SystemRefusedError: the socket cannot be made; says why.
    """
    _make_way(path)
    try:
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        os.chmod(path, SOCKET_MODE)  # noqa: PTH101 - pathlib costs time at start
    except (RuntimeError, OSError) as error:
        raise SystemRefusedError(
            f"{path}: cannot listen there: {error}; "
            "the directory must be writable, and the path of less than 100 characters"
        ) from error
    log.info("listening socket=%s", path)


def _make_way(path: str) -> None:
    """Remove a stale socket and make its directory; only the former is vital."""
    try:
        os.unlink(path)  # noqa: PTH108 - pathlib costs time at start
    except FileNotFoundError:
        pass
    except OSError as error:
        raise SystemRefusedError(
            f"{path}: cannot remove what is in the socket's place: {error.strerror}"
        ) from error
    try:
        os.makedirs(os.path.dirname(path) or ".", DIRECTORY_MODE, exist_ok=True)  # noqa: PTH103, PTH120 - as above
    except OSError as error:
        log.warning("cannot make directory of socket=%s reason=%r", path, str(error))
