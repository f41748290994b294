"""How an HTTP proxy is asked for a tunnel.

Source: xds-identity-dns.md section 2.3; RFC 9110 section 9.3.6.
"""

import base64
from typing import Final
from urllib.parse import unquote, urlsplit

HTTP_PORT: Final = 80
#: An empty line, with or without carriage returns. RFC 9112 section 2.2.
ENDS: Final = (b"\n\r\n", b"\n\n")
MAX_HEAD_BYTES: Final = 16 * 1024


def place(proxy: str) -> tuple[str, int]:
    """Return host and port of a proxy's URL."""
    parts = urlsplit(proxy)
    return parts.hostname or "", parts.port or HTTP_PORT


def write_request(address: str, proxy: str) -> bytes:
    """Return the request for a tunnel to host:port through a proxy."""
    lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
    user, has_user, _ = urlsplit(proxy).netloc.rpartition("@")
    if has_user:
        name, _, password = user.partition(":")
        secret = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
        lines.append(f"Proxy-Authorization: Basic {secret}")
    return "\r\n".join([*lines, "", ""]).encode()


def read_answer(head: bytes) -> None:
    """Take a proxy's answer, or what came of it.

    Raises:
        OSError: there is no tunnel; says why.
    """
    line = head.partition(b"\n")[0][:100].decode("latin-1").rstrip()
    version, _, status = line.partition(" ")
    if not head.endswith(ENDS) or not version.startswith("HTTP/1."):
        raise OSError(f"the proxy does not answer in HTTP: {line!r}")
    if not status.startswith("2"):
        raise OSError(f"the proxy refuses a tunnel: {status}")
