"""Looks for SDS servers of others, such as a SPIFFE agent's, before Envoy is spawned.

A socket counts when a server answers on it as gRPC does, with HTTP/2 settings: a bare connect
succeeds on the backlog of one that hangs. One that is dead is removed, or nobody could take its
place; but not after a single look, because a server may be starting anew (D-23).

Source: xds-identity-dns.md section 4.2; bootstrap.md section 1.9.
"""

import _socket
import os
import stat
import time
from contextlib import suppress
from typing import Final, NamedTuple

from agent.errors import AgentError, SystemRefusedError
from agent.identity.settings import SOCKET_FILE

WORKLOAD_DIRECTORY: Final = "./var/run/secrets/workload-spiffe-uds"
CREDENTIAL_SOCKET: Final = "./var/run/secrets/credential-uds/socket"
ANSWER_SECONDS: Final = 1.0
LOOKS: Final = 3
#: Between two looks at a socket on which nobody listens. It is usually our own, of a container
#: that was killed, and every start pays for this.
PAUSE_SECONDS: Final = 0.02

# Source: RFC 9113 sections 3.4, 4.1 and 6.5.
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS: Final = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
HEADER_BYTES: Final = 9
TYPE_AT: Final = 3


class Found(NamedTuple):
    """Servers of others."""

    #: The workload's identity is theirs; we serve other files.
    workload: bool = False
    #: There are credentials for gateways.
    credential: bool = False


def look(socket_file: str) -> Found:
    """Return whose servers answer; dead sockets are removed.

    Args:
        socket_file: name of the socket where Envoy looks for its identity.

    Raises:
        SystemRefusedError: a dead socket cannot be removed.
        AgentError: there is no server where only somebody else's can be.
    """
    path = f"{WORKLOAD_DIRECTORY}/{socket_file}"
    workload = is_served(path)
    if not workload and socket_file != SOCKET_FILE:
        raise AgentError(
            f"agent configured for non-default SDS socket path: {path} but no socket found; "
            "mount the socket of the SDS server there or unset WORKLOAD_IDENTITY_SOCKET_FILE"
        )
    return Found(workload, is_served(CREDENTIAL_SOCKET))


def is_served(path: str) -> bool:
    """Return whether a gRPC server answers on a socket; a dead one is removed.

    Raises:
        SystemRefusedError: it is dead and cannot be removed.
    """
    if not _is_there(path):
        return False
    problem = ""
    for look in range(LOOKS):
        if look:
            time.sleep(PAUSE_SECONDS)
        try:
            _greet(path)
        except OSError as error:
            problem = error.strerror or str(error)
        else:
            return True
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - pathlib costs 5 ms before the spawn
    except OSError as error:
        raise SystemRefusedError(
            f"{path}: nobody answers there ({problem}), and it cannot be removed: {error.strerror}"
        ) from error
    return False


def _is_there(path: str) -> bool:
    """Return whether there is anything but a regular file."""
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - as above
    except OSError:
        return False


def _greet(path: str) -> None:
    """Return once a server has sent its settings; OSError if none does in time."""
    deadline = time.monotonic() + ANSWER_SECONDS
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        connection.settimeout(ANSWER_SECONDS)
        connection.connect(path)
        connection.send(PREFACE + EMPTY_SETTINGS)
        header = b""
        while len(header) < HEADER_BYTES:
            connection.settimeout(max(deadline - time.monotonic(), 0.001))
            received = connection.recv(HEADER_BYTES - len(header))
            if not received:
                raise ConnectionError("closed without HTTP/2 settings")
            header += received
        if header[TYPE_AT] != EMPTY_SETTINGS[TYPE_AT]:
            raise ConnectionError("answers, but not in HTTP/2")
    finally:
        connection.close()
