"""One gRPC health call over plain HTTP/2.

grpcio cannot choose a source address.
"""

from typing import Final

from agent.http.client import HttpError, stream
from agent.http.message import join_host_port
from agent.status.health import PATH, answer, request_body

BODY_LIMIT_BYTES: Final = 64 * 1024
#: Of eight digits: gRPC refuses more.
MAX_TIMEOUT: Final = 99_999_999


async def check(
    host: str, port: int, service: str, *, user_agent: str, timeout_seconds: float, source: str
) -> str:
    """Return the name of the serving status.

    Raises:
        HttpError: no connection, no answer in time, or an error of the call.
    """
    headers = (
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-timeout", f"{min(int(timeout_seconds * 1000), MAX_TIMEOUT)}m"),
        ("user-agent", f"{user_agent} grpc-mesh-agent".strip()),
    )
    body = b""
    try:
        async with stream(
            "POST",
            host,
            port,
            PATH,
            headers=headers,
            body=request_body(service),
            timeout_seconds=timeout_seconds,
            source=source,
            http2=True,
        ) as incoming:
            async for piece in incoming:
                body += piece
                if len(body) > BODY_LIMIT_BYTES:
                    raise incoming.error("answer is too long")
            return answer(incoming.status, (*incoming.trailers, *incoming.headers), body)
    except (HttpError, ValueError) as error:
        reason = error.reason if isinstance(error, HttpError) else str(error)
        raise HttpError(join_host_port(host, port), f"health call failed: {reason}") from error
