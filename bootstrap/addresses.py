"""Text of IP addresses and host:port pairs, and what a pod's addresses mean for its listeners.

Written by hand for IPv4, because `ipaddress` is only needed where IPv6 is.
Source: bootstrap.md sections 3.3, 4.2 and 5.2.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

IpMode = Literal["ipv4", "ipv6", "dual"]

DIGITS: Final = frozenset("0123456789")
LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
OCTETS: Final = 4
MAX_OCTET: Final = 255
MAX_PORT: Final = 65535
MAX_LABEL: Final = 63
MAX_NAME: Final = 255


class Network(NamedTuple):
    """The addresses that the bootstrap's listeners, clusters and admin port use."""

    localhost: str
    wildcard: str
    dns_lookup_family: str
    #: Of the other family; empty unless the pod is dual stack and asked for it.
    additional_localhost: str = ""
    additional_wildcard: str = ""


IPV4: Final = Network("127.0.0.1", "0.0.0.0", "V4_ONLY")  # noqa: S104 - Envoy's own listeners
IPV6: Final = Network("::1", "::", "V6_ONLY")


def network(addresses: Sequence[str], *, dual_stack: bool) -> Network:
    """Return what a pod with these addresses listens on; mixed ones need `dual_stack`.

    Source: bootstrap.md section 5.2, LOCALHOST, WILDCARD and DNSFAM.
    """
    mode = ip_mode(addresses)
    if mode == "ipv6":
        return IPV6
    if mode == "ipv4" or not dual_stack:
        return IPV4
    first = next(filter(ip_version, addresses))
    one, other = (IPV6, IPV4) if ip_version(first) == 6 else (IPV4, IPV6)  # noqa: PLR2004 - IPv6
    return Network(one.localhost, one.wildcard, "ALL", other.localhost, other.wildcard)


def ip_mode(addresses: Sequence[str]) -> IpMode:
    """Return the families of the addresses; text that is none is ignored, nothing is IPv4."""
    versions = {ip_version(address) for address in addresses} - {0}
    if versions <= {4}:
        return "ipv4"
    return "ipv6" if versions == {6} else "dual"


def ip_version(text: str) -> int:
    """Return 4 or 6, or 0 where the text is no IP address."""
    if ":" not in text:
        return 4 if _is_ipv4(text) else 0
    return 6 if canonical_ip(text) else 0


def canonical_ip(text: str) -> str:
    """Return the address in its usual text form, an IPv4-mapped one as IPv4, or ''."""
    if ":" not in text:
        return text if _is_ipv4(text) else ""
    import ipaddress  # noqa: PLC0415 - a millisecond that IPv4 pods need not spend

    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return ""
    return str(address.ipv4_mapped or address)


def is_ready(address: str) -> bool:
    """Return whether an interface's address is assigned; '0.0.0.0' and '::' are placeholders."""
    return address not in (IPV4.wildcard, IPV6.wildcard)


def is_reachable(address: str) -> bool:
    """Return whether others could reach a canonical address: neither loopback nor link-local."""
    if ":" not in address:
        return not address.startswith(("127.", "169.254.", "224.0.0."))
    import ipaddress  # noqa: PLC0415 - a millisecond that IPv4 pods need not spend

    ip = ipaddress.IPv6Address(address)
    link_local_multicast = address.lower().startswith("ff02:")
    return not (ip.is_loopback or ip.is_link_local or link_local_multicast)


def split_host_port(text: str) -> tuple[str, int]:
    """Return host (an IPv6 address without its brackets) and port of 'host:port'.

    Raises:
        ValueError: the message says what was expected.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("expected host:port, an IPv6 address in brackets")
    if not colon or "[" in host or "]" in host:
        raise ValueError("expected host:port")
    if not 0 < len(port) <= len(str(MAX_PORT)) or not set(port) <= DIGITS:
        raise ValueError(f"expected host:port with a port in 1..{MAX_PORT}")
    if not 0 < int(port) <= MAX_PORT:
        raise ValueError(f"expected host:port with a port in 1..{MAX_PORT}")
    return host, int(port)


def check_address(text: str) -> None:
    """Raise ValueError unless the text is host:port with a DNS name or an IP address as host."""
    host, _ = split_host_port(text)
    if not ip_version(host) and not _is_dns_name(host):
        raise ValueError("expected a DNS name or an IP address before the port")


def join_host_port(host: str, port: int | str) -> str:
    """Return 'host:port', an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_ipv4(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == OCTETS and all(map(_is_octet, parts))


def _is_octet(text: str) -> bool:
    # Leading zeros are refused: some readers take them for octal.
    return (
        0 < len(text) <= len(str(MAX_OCTET))
        and set(text) <= DIGITS
        and (text == "0" or text[0] != "0")
        and int(text) <= MAX_OCTET
    )


def _is_dns_name(text: str) -> bool:
    """Return whether the text is DNS-1123 labels; the last may not be all digits."""
    labels = text.removesuffix(".").split(".")
    return len(text) <= MAX_NAME and all(map(_is_label, labels)) and not set(labels[-1]) <= DIGITS


def _is_label(text: str) -> bool:
    inner = set(text) <= LETTERS | DIGITS | {"-"}
    return 0 < len(text) <= MAX_LABEL and inner and "-" not in (text[0], text[-1])
