"""Settings that connections to the control plane and to the CA have in common.

Source: xds-identity-dns.md sections 2.2 to 2.4, 6.3 and 6.4.
"""

import re
from typing import Final, NamedTuple

from agent.credentials import places
from agent.reader import Reader, parse_host_port, parse_text

GOOGLE: Final = "GoogleComputeEngine"
HTTP_PORT: Final = 80
PROXIES: Final = ("HTTPS_PROXY", "https_proxy")
#: gRPC asks a proxy in the clear, whatever its URL says; so does its Go sibling.
PROXY_SCHEMES: Final = ("http", "https")

#: What TLS may be restricted to; channel/policies.py has what each allows.
COMPLIANCE_POLICIES: Final = ("fips-140-2", "fips-140-3", "pqc")


class TokenSettings(NamedTuple):
    """Where the token comes from that speaks for this pod."""

    path: str = places.TOKEN
    #: Google's metadata server, which makes the token then; the path gets a copy.
    metadata_host: str = ""
    metadata_port: int = HTTP_PORT
    #: Whom such a token is for. TRUST_DOMAIN.
    audience: str = ""


def parse_token(read: Reader, *, metadata_host: str) -> TokenSettings:
    """Return where the token comes from.

    Args:
        read: the environment.
        metadata_host: of Google's metadata server, perhaps with a port.
    """
    source = read.take("CREDENTIAL_FETCHER_TYPE", parse_text, default="JWT")
    if source in ("", "JWT"):
        return TokenSettings()
    if source != GOOGLE:
        read.errors.append(
            f"CREDENTIAL_FETCHER_TYPE={source!r}: expected 'JWT', a file, or {GOOGLE!r}"
        )
    host, port = parse_host_port(metadata_host, default_port=HTTP_PORT)
    return TokenSettings(
        metadata_host=host,
        metadata_port=port,
        audience=read.take("TRUST_DOMAIN", parse_text, default="cluster.local"),
    )


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


def parse_proxy(read: Reader, address: str) -> str:
    """Return the URL of the HTTP proxy on the way to host:port, as Go's gRPC chooses it.

    Empty: there is none, or none that can be used, which is a warning.
    """
    if not any(read.values.get(name) for name in PROXIES):
        return ""
    from agent.http.proxies import choose_proxy  # noqa: PLC0415 - 3 ms before Envoy, for few pods

    try:
        proxy = choose_proxy(f"https://{address}", read.values)
        return _in_the_clear(proxy) if proxy else ""
    except ValueError as error:
        warning = f"{error}; ignored"
        if warning not in read.warnings:
            read.warnings.append(warning)
        return ""


def _in_the_clear(proxy: str) -> str:
    """Return the URL of a proxy as gRPC takes it."""
    scheme, _, rest = proxy.partition("://")
    if scheme.lower() not in PROXY_SCHEMES:
        raise ValueError(f"HTTPS_PROXY: gRPC knows no {scheme} proxy, expected http://…")
    return f"http://{rest}"


def parse_policy(text: str) -> str:
    """Return the name of a policy for TLS, "" for none (2.2)."""
    if text and text not in COMPLIANCE_POLICIES:
        raise ValueError(f"expected one of {', '.join(COMPLIANCE_POLICIES)}")
    return text


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own loopback."""
    import ipaddress  # noqa: PLC0415 - 1 ms that only a plaintext connection needs

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
