"""Settings that connections to the control plane and to the CA have in common."""

import re

from agent.reader import Reader


def parse_headers(read: Reader, prefix: str) -> list[tuple[str, str]]:
    """Return gRPC metadata from the variables with a prefix, sorted.

    A key or value that HTTP/2 forbids would make every call fail: it is left out with a warning.
    """
    headers = []
    for name, value in sorted(read.values.items()):
        key = name.removeprefix(prefix).lower()
        if not name.startswith(prefix):
            continue
        if (
            not re.fullmatch(r"[0-9a-z_.-]+", key)
            or key.startswith("grpc-")
            or key.endswith("-bin")
        ):
            read.warnings.append(f"{name}: no header can be named {key!r}; not sent")
        elif not re.fullmatch(r"[ -~]*", value):
            read.warnings.append(f"{name}: expected printable ASCII; not sent")
        else:
            headers.append((key, value))
    return headers


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own loopback."""
    import ipaddress  # noqa: PLC0415 - 1 ms that only a plaintext connection needs

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
