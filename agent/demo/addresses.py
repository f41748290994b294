"""The addresses of a node and its pod."""

from typing import Final, Literal, NamedTuple

Family = Literal["IPv4", "IPv6"]


class Cable(NamedTuple):
    """The addresses at both ends of a virtual Ethernet pair, each in a /24 or a /64."""

    node_ipv4: str = "10.244.7.1"
    pod_ipv4: str = "10.244.7.2"
    node_ipv6: str = "fd00:7::1"
    pod_ipv6: str = "fd00:7::2"

    def node(self, family: Family) -> str:
        """Return the node's address."""
        return self.node_ipv4 if family == "IPv4" else self.node_ipv6

    def pod(self, family: Family) -> str:
        """Return the pod's address."""
        return self.pod_ipv4 if family == "IPv4" else self.pod_ipv6


CABLE: Final = Cable()


def url(address: str, port: int, path: str = "/") -> str:
    """Return an HTTP URL; an IPv6 address gets its brackets."""
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}{path}"
