"""One gRPC health call over plain HTTP/2.

grpcio cannot choose a source address; h2 is imported by the first such probe.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError

from agent.http.client import HttpError, dial
from agent.http.message import Headers, join_host_port
from agent.status.health import CODES, PATH, STATUSES, request_body, serving_status

STREAM: Final = 1
BODY_LIMIT_BYTES: Final = 64 * 1024


async def check(
    host: str, port: int, service: str, *, user_agent: str, timeout_seconds: float, source: str
) -> str:
    """Return the name of the serving status.

    Raises:
        HttpError: no connection, no answer in time, or an error of the call.
    """
    authority = join_host_port(host, port)
    headers = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", PATH),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-timeout", f"{int(timeout_seconds * 1000)}m"),
        ("user-agent", f"{user_agent} grpc-mesh-agent".strip()),
    )
    deadline = asyncio.get_running_loop().time() + timeout_seconds
    sock = await dial(host, port, timeout_seconds=timeout_seconds, source=source)
    try:
        async with asyncio.timeout_at(deadline):
            reader, writer = await asyncio.open_connection(sock=sock)
            try:
                return await _call(reader, writer, headers, request_body(service))
            finally:
                writer.transport.abort()
    except TimeoutError as error:
        raise HttpError(authority, f"DEADLINE_EXCEEDED after {timeout_seconds:g} s") from error
    except (OSError, ProtocolError, ValueError) as error:
        raise HttpError(authority, f"health call failed: {error}") from error
    finally:
        sock.close()


async def _call(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Headers, body: bytes
) -> str:
    connection = H2Connection(H2Configuration(client_side=True, header_encoding="latin-1"))
    connection.initiate_connection()
    connection.send_headers(STREAM, headers)
    connection.send_data(STREAM, body, end_stream=True)
    writer.write(connection.data_to_send())
    call = _Call(connection)
    while not call.is_over:
        data = await reader.read(65536)
        if not data:
            raise ValueError("connection closed before an answer")
        call.take(connection.receive_data(data))
        writer.write(connection.data_to_send())
    return call.result()


class _Call:
    """What came back of the one call."""

    def __init__(self, connection: H2Connection) -> None:
        self.is_over = False
        self._connection = connection
        self._headers: dict[str, str] = {}
        self._body = b""

    def take(self, events: Iterable[Event]) -> None:
        """Take what the connection made of some bytes."""
        for event in events:
            if isinstance(event, ResponseReceived | TrailersReceived):
                self._headers |= {str(name): str(value) for name, value in event.headers or ()}
            elif isinstance(event, DataReceived):
                self._body += event.data or b""
                self._connection.acknowledge_received_data(
                    event.flow_controlled_length or 0, STREAM
                )
                if len(self._body) > BODY_LIMIT_BYTES:
                    raise ValueError("answer is too long")
            elif isinstance(event, StreamReset | ConnectionTerminated):
                reason = f"stream was reset, error code {event.error_code}"
                raise ValueError(reason)  # noqa: TRY004 -- the peer's doing
            elif isinstance(event, StreamEnded):
                self.is_over = True

    def result(self) -> str:
        """Return the serving status; ValueError names the code of a failed call."""
        code = self._headers.get("grpc-status", "")
        if code != "0":
            status = self._headers.get(":status", "")
            raise ValueError(CODES.get(code) or f"code {code or 'none'}, HTTP status {status}")
        return STATUSES.get(serving_status(self._body), "UNKNOWN")
