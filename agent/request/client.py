"""Blocking HTTP on the C socket type: what a command needs that must start like a small tool.

The modules `socket`, `http.client` and `asyncio` would each cost more than the whole exchange
(performance.md, "Small tools"). Proxy variables are never looked at.

Source: bootstrap.md section 1.5.
"""

import _socket
import time

from agent.request.message import MessageError, Response, next_request, parse_url, render_request
from agent.request.settings import CommandError

MAX_REQUESTS = 10  #: with redirects; the reference's limit
CHUNK_BYTES = 65536
LONGEST_WAIT = 86400.0  #: seconds; a socket takes no more than some 9e9
#: Both loopbacks, whatever the hosts file says: on an IPv6 pod the admin port is only on ::1.
LOCALHOST = ((_socket.AF_INET, "127.0.0.1"), (_socket.AF_INET6, "::1"))


class ExchangeError(CommandError):
    """No complete response. Retried by `wait` only."""


class ConnectError(ExchangeError):
    """Nothing listens there, or it cannot be reached."""


def fetch(method: str, url: str, body: bytes = b"", *, timeout_seconds: float) -> Response:
    """Return the complete response to a request, redirects followed.

    Raises:
        ConnectError: none of the host's addresses accepts connections.
        ExchangeError: it took too long, broke off, was no HTTP, or was redirected for ever.
    """
    deadline = time.monotonic() + timeout_seconds
    for _ in range(MAX_REQUESTS):
        try:
            response = _exchange(method, url, body, deadline)
            following = next_request(method, url, body, response)
        except MessageError as error:
            raise ExchangeError(str(error)) from error
        except TimeoutError as error:
            raise ExchangeError(f"{method} {url}: no answer in {timeout_seconds:g}s") from error
        if following is None:
            return response
        method, url, body = following
    raise ExchangeError(f"{method} {url}: expected an answer after {MAX_REQUESTS} redirects")


def _exchange(method: str, url: str, body: bytes, deadline: float) -> Response:
    request = render_request(method, url, body)
    host, port, _ = parse_url(url)
    response = Response(method)
    connection = _connect(host, port, deadline)
    try:
        connection.settimeout(_remaining(deadline))
        connection.sendall(request)
        while not response.complete:
            connection.settimeout(_remaining(deadline))
            data = connection.recv(CHUNK_BYTES)
            if data:
                response.feed(data)
            else:
                response.end()
    except TimeoutError:
        raise
    except OSError as error:
        raise ExchangeError(f"{method} {url}: {_reason(error)}") from error
    finally:
        connection.close()
    return response


def _connect(host: str, port: int, deadline: float) -> _socket.socket:
    """Return a connection to the first of the host's addresses that accepts one.

    Each address gets an equal share of the time that is left.
    """
    failures = []
    addresses = LOCALHOST if host == "localhost" else _resolve(host)
    for index, (family, address) in enumerate(addresses):
        connection = None
        try:
            connection = _socket.socket(family, _socket.SOCK_STREAM)
            connection.settimeout(_remaining(deadline) / (len(addresses) - index))
            connection.connect((address, port))
        except OSError as error:
            failures.append(f"{address}: {_reason(error)}")
            if connection is not None:
                connection.close()
        else:
            return connection
    raise ConnectError(f"cannot connect to port {port} of {host} ({', '.join(failures)})")


def _resolve(host: str) -> tuple[tuple[int, str], ...]:
    try:
        # As bytes, or the idna codec is imported to encode it: 3 ms.
        found = _socket.getaddrinfo(host.encode("ascii"), None, 0, _socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectError(f"cannot resolve {host}: {_reason(error)}") from error
    return tuple((family, str(address[0])) for family, _, _, _, address in found)


def _remaining(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return min(seconds, LONGEST_WAIT)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
