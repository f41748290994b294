"""The messages of grpc.health.v1.Health/Check, small enough to write down.

Source: status-lifecycle.md section 5.6; grpc/health/v1/health.proto.
"""

import struct
from typing import Final

from agent.http.message import Headers, first_value

PATH: Final = "/grpc.health.v1.Health/Check"
STATUSES: Final = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
#: Codes that a health call ends with, by number (grpc's statuscodes.md).
CODES: Final = {
    "1": "CANCELLED",
    "2": "UNKNOWN",
    "4": "DEADLINE_EXCEEDED",
    "5": "NOT_FOUND",
    "7": "PERMISSION_DENIED",
    "12": "UNIMPLEMENTED: the server has no grpc.health.v1.Health",
    "13": "INTERNAL",
    "14": "UNAVAILABLE",
    "16": "UNAUTHENTICATED",
}
VARINT: Final = 0
#: Flag byte and length before each message.
PREFIX: Final = struct.Struct(">BI")


def request_body(service: str) -> bytes:
    """Return the framed question about a service, the whole server for an empty name."""
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    return PREFIX.pack(0, len(message)) + message


def answer(status: int, headers: Headers, body: bytes) -> str:
    """Return the name of the serving status.

    Args:
        status: of HTTP.
        headers: trailers first; a call that fails at once has none.
        body: the framed answer.

    Raises:
        ValueError: the call has failed; names its code.
    """
    code = first_value(headers, "grpc-status")
    if code != "0":
        raise ValueError(CODES.get(code) or f"code {code or 'none'}, HTTP status {status}")
    return STATUSES.get(serving_status(body), "UNKNOWN")


def serving_status(body: bytes) -> int:
    """Return the status in a framed answer, 0 where it has none.

    Raises:
        ValueError: it is no such answer.
    """
    if len(body) < PREFIX.size:
        raise ValueError("health answer has no message")
    flag, length = PREFIX.unpack_from(body)
    message = body[PREFIX.size :]
    if flag or len(message) != length:
        raise ValueError("health answer: expected one plain message")
    status, position = 0, 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        if tag & 7 != VARINT:
            break  # a field that this version of the service does not know
        value, position = _read_varint(message, position)
        if tag >> 3 == 1:
            status = value
    return status


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:  # noqa: PLR2004 -- seven bits a byte
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*parts, value))


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:  # noqa: PLR2004 -- the last byte has no high bit
            return value, position + shift + 1
    raise ValueError("health answer ends too early")
