"""Asks the metadata services of clouds, one after the other, on plain sockets.

Source: bootstrap.md section 4.7.
"""

import _socket
import time
from typing import Final

from agent.cloud.platforms import (
    AZURE_VENDOR,
    GCP_HEADERS,
    GCP_TOKEN,
    Ask,
    Conversation,
    Found,
    aws,
    azure,
    gcp,
    gcp_instance,
    gcp_labels,
    gcp_token,
)
from agent.cloud.settings import HTTP_PORT
from agent.reader import parse_host_port

OK: Final = b"200"
MAX_BYTES: Final = 1 << 20
#: Of one question.
ASK_SECONDS: Final = {"aws": 0.1, "azure": 1.0, "gcp": 1.0}
#: Of the compute API, beyond which the reference does without labels.
LABELS_SECONDS: Final = 5.0
VENDOR: Final = "/sys/class/dmi/id/sys_vendor"


def detect(hosts: list[tuple[str, str]]) -> Found | None:
    """Return what the first cloud to know this machine says.

    Args:
        hosts: platforms and the hosts of their metadata services. A single one is taken to be it.
    """
    is_certain = len(hosts) == 1
    for platform, host in hosts:
        conversation = _conversation(platform, is_certain=is_certain)
        if conversation is None:
            continue
        if result := _converse(conversation, host, ASK_SECONDS[platform]):
            return result
    return None


def add_labels(found: Found, gcp_host: str, compute_host: str) -> Found:
    """Return what was found with the labels that the compute API has of a machine of GCP.

    Args:
        found: of this machine.
        gcp_host: of the metadata service, which gives the token.
        compute_host: of the compute API; it is asked by TLS, through HTTPS_PROXY where that is set.
    """
    target = gcp_instance(found)
    token = target and gcp_token(
        _answer(Ask("GET", GCP_TOKEN, GCP_HEADERS), gcp_host, ASK_SECONDS["gcp"])
    )
    if not token:
        return found
    import http.client  # noqa: PLC0415 - few machines have labels that count
    import urllib.request  # noqa: PLC0415 - and these take 30 ms

    headers = {"Authorization": f"Bearer {token}"}
    try:
        request = urllib.request.Request(f"https://{compute_host}{target}", headers=headers)
        with urllib.request.urlopen(request, timeout=LABELS_SECONDS) as answer:  # noqa: S310 - by https
            text = answer.read(MAX_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError, http.client.HTTPException):
        return found
    return found._replace(labels=gcp_labels(text))


def _conversation(platform: str, *, is_certain: bool) -> Conversation | None:
    if platform == "aws":
        return aws(is_certain=is_certain)
    if platform == "gcp":
        return gcp()
    return azure() if is_certain or AZURE_VENDOR in _vendor() else None


def _vendor() -> str:
    try:
        with open(VENDOR, errors="replace") as file:  # noqa: PTH123 - pathlib is slow to import
            return file.read()
    except OSError:
        return ""


def _converse(conversation: Conversation, host: str, timeout_seconds: float) -> Found | None:
    answer = None
    while True:
        try:
            answer = _answer(conversation.send(answer), host, timeout_seconds)
        except StopIteration as stop:
            result: Found | None = stop.value
            return result


def _answer(ask: Ask, host: str, timeout_seconds: float) -> str | None:
    """Return the body of an answer, None where there is none, or another than was asked for."""
    lines = (f"{ask.method} {ask.target} HTTP/1.0", f"Host: {host}", "Content-Length: 0")
    head = "\r\n".join((*lines, *(f"{name}: {value}" for name, value in ask.headers)))
    try:
        received = _exchange(host, f"{head}\r\n\r\n".encode(), timeout_seconds)
    except (OSError, ValueError):  # the host's may be no port
        return None
    answer, _, body = received.partition(b"\r\n\r\n")
    if not (ask.any_status or answer.split(b" ", 2)[1:2] == [OK]):
        return None
    return body.decode("utf-8", "replace").strip()


def _exchange(host: str, request: bytes, timeout_seconds: float) -> bytes:
    due = time.monotonic() + timeout_seconds
    name, port = parse_host_port(host, default_port=HTTP_PORT)
    received = b""
    connection = _socket.socket(_socket.AF_INET6 if ":" in name else _socket.AF_INET)
    try:
        connection.settimeout(timeout_seconds)
        connection.connect((name, port))
        connection.sendall(request)
        while len(received) < MAX_BYTES:
            connection.settimeout(max(due - time.monotonic(), 0.001))
            data = connection.recv(65536)
            if not data:
                break
            received += data
    finally:
        connection.close()
    return received
