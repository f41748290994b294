"""resolv.conf: who the upstream resolvers are, and the first search domain.

Source: xds-identity-dns.md section 8.2; resolv.conf(5).
"""

from collections.abc import Collection
from ipaddress import ip_address
from typing import NamedTuple

from agent.dns.race import Server


class ResolvConf(NamedTuple):
    """What is used of the file."""

    servers: tuple[Server, ...] = ()
    #: The first search domain; '' for none.
    search: str = ""


def parse_resolv_conf(text: str) -> ResolvConf:
    """Return what the file says; of several `search` or `domain` lines the last one counts."""
    servers: list[Server] = []
    search = ""
    for line in text.splitlines():
        match line.split():
            case ["nameserver", host, *_] if _is_address(host):
                servers.append(Server(host))
            case ["search" | "domain", first, *_]:
                search = first
    return ResolvConf(tuple(dict.fromkeys(servers)), search)


def without(conf: ResolvConf, own: Collection[Server]) -> ResolvConf:
    """Return the same without resolvers that are the agent itself."""
    mine = {(ip_address(server.host), server.port) for server in own}
    others = (
        server for server in conf.servers if (ip_address(server.host), server.port) not in mine
    )
    return conf._replace(servers=tuple(others))


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
