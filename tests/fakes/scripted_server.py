"""A server that answers each connection with given bytes, well-formed or not."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class ScriptedServer:
    """Where it listens, and what it was asked."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        self.requests: list[bytes] = []

    def serve(self, answers: Sequence[Sequence[bytes]]) -> None:
        """Answer one connection after the other, the last answer for all that follow.

        An answer is sent piece by piece, then the connection is closed; one without pieces stays
        open and silent until the client gives up.
        """
        for index in range(1_000_000):
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.requests.append(_read_request(connection))
                pieces = answers[min(index, len(answers) - 1)]
                try:
                    for piece in pieces:
                        connection.sendall(piece)
                    if not pieces:
                        connection.recv(1)
                except OSError:
                    continue  # the client did not wait for it


def _read_request(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        if not (data := connection.recv(65536)):
            return received
        received += data
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
    length = int(lengths[0].split()[1]) if lengths else 0
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def scripted_server(
    *answers: Sequence[bytes], family: socket.AddressFamily = socket.AF_INET, port: int = 0
) -> Iterator[ScriptedServer]:
    """Serve on the family's loopback address; a port of 0 is a free one."""
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, port), family=family) as listener:
        server = ScriptedServer(listener)
        thread = threading.Thread(target=server.serve, args=(answers,))
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def answer(status: str, body: bytes = b"", *headers: str) -> tuple[bytes]:
    """Return an answer with a counted body."""
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
    return (("\r\n".join(lines) + "\r\n\r\n").encode() + body,)
