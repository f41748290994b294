"""Which HTTP proxy a request goes through, by the environment variables that Go programs follow.

HTTP_PROXY, HTTPS_PROXY and NO_PROXY, or their lower-case forms, which count where the others are
not set. NO_PROXY holds, separated by commas: '*', IP addresses, CIDRs, domains with all below them,
and '.domain' for those below alone; each may have a port. The loopback needs no entry.

Source: xds-identity-dns.md sections 2.3 and 3.8; golang.org/x/net/http/httpproxy.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

PORTS: Final = {"http": 80, "https": 443}


def choose_proxy(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a request, none if it goes straight to its server.

    Raises:
        ValueError: the proxy is no URL.
    """
    parts = urlsplit(url)
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name.upper()) or environ.get(name, "")
    if parts.scheme == "http" and environ.get("REQUEST_METHOD"):
        proxy = ""  # a CGI script: its client could have set HTTP_PROXY by a header
    if not proxy or not _needs_proxy(parts, environ.get("NO_PROXY") or environ.get("no_proxy", "")):
        return None
    full = proxy if "://" in proxy else f"http://{proxy}"
    if not _is_proxy(full):
        raise ValueError(f"{name.upper()}: expected the URL of a proxy")
    return full


def _is_proxy(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, a bracket without the other
        return False


def _needs_proxy(parts: SplitResult, exceptions: str) -> bool:
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or PORTS.get(parts.scheme, 0)
    address = _address(host)
    if host == "localhost" or (address and address.is_loopback):
        return False
    return not any(
        _matches(entry.strip().lower(), host, port) for entry in exceptions.split(",") if entry
    )


def _matches(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _in_network(host, entry)
    name, entry_port = _split_port(entry)
    if not name or entry_port not in ("", str(port)):
        return False
    if wanted := _address(name):
        return wanted == _address(host)
    name = name.rstrip(".")
    if name.startswith("*."):
        name = name[1:]
    below = name if name.startswith(".") else f".{name}"
    return host == name or host.endswith(below)


def _in_network(host: str, text: str) -> bool:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    address = _address(host)
    return address is not None and address in network


def _split_port(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        return name, rest.removeprefix(":")
    if entry.count(":") == 1:
        name, _, port = entry.partition(":")
        return name, port
    return entry, ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
