"""TCP ports of a test, closed and open."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

LOCAL = "127.0.0.1"


def closed_port() -> int:
    with socket.create_server((LOCAL, 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def listening(port: int = 0) -> Iterator[int]:
    with socket.create_server((LOCAL, port)) as listener:
        yield listener.getsockname()[1]
