"""The command `dns`: asks the agent of this pod, and says where the answer comes from.

Imports stand in the functions: what help and usage errors do not need must not slow them.
"""

# ruff: noqa: PLC0415 - see above

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from agent.cli import fail
from iptables.flags import GLOBAL_FLAGS, UsageError, parse_flags, render_help

if TYPE_CHECKING:
    from dns.message import Message, QueryMessage

USAGE: Final = "agent dns lookup NAME [TYPE]"
SUMMARY: Final = (
    "Ask the DNS proxy of this pod's agent for a name, and say where the answer comes from: which "
    "entry of the name table, by which of its names, or which nameserver, and why. The type is A "
    "unless given. A name is taken as it is: no search domain is put behind it."
)
#: Beyond the time that the agent gives its nameservers.
PATIENCE_SECONDS: Final = 1.0


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Look a name up; return the exit code, 0 for any reply."""
    try:
        flags = parse_flags(GLOBAL_FLAGS, argv)
    except UsageError as error:
        return fail(error)
    words = flags.positionals
    if flags.help or not words:
        sys.stdout.write(render_help(USAGE, SUMMARY, GLOBAL_FLAGS))
        return 0
    match words:
        case ["lookup", name]:
            return _lookup(name, "A", environ)
        case ["lookup", name, rdtype]:
            return _lookup(name, rdtype, environ)
    return fail(f"dns {' '.join(words)}: expected lookup NAME [TYPE]")


def _lookup(name: str, rdtype: str, environ: Mapping[str, str]) -> int:
    from agent.dns.messages.explain import explanation, make_query
    from agent.dns.settings import parse_dns
    from agent.reader import Reader

    read = Reader({**environ, "ISTIO_META_ENABLE_DNS_SERVER": "true"})
    settings = parse_dns(read, is_sidecar=True, is_root=True, is_local=False, domain="")
    if read.errors:
        return fail(read.errors[0])
    try:
        query = make_query(name, rdtype)
    except ValueError as error:
        return fail(error)
    host = "127.0.0.1" if settings.host in ("", "localhost", "0.0.0.0") else settings.host  # noqa: S104 - as asked
    reply = _ask(query, host, settings.port, settings.timeout_seconds + PATIENCE_SECONDS)
    if isinstance(reply, str):
        return fail(
            f"no answer from the agent's DNS proxy at {host}#{settings.port}: {reply}; it listens "
            "where ISTIO_META_DNS_CAPTURE=true"
        )
    sys.stdout.write("".join(f"{line}\n" for line in explanation(reply)))
    return 0


def _ask(query: "QueryMessage", host: str, port: int, seconds: float) -> "Message | str":
    """Return the reply, or why there is none."""
    import socket

    import dns.exception
    import dns.query

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
            sock.connect((host, port))  # or nobody would tell that nobody listens
            return dns.query.udp_with_fallback(query, host, seconds, port, udp_sock=sock)[0]
    except dns.exception.Timeout:
        return f"silent for {seconds:g} seconds"
    except dns.exception.DNSException as error:
        return str(error).lower()
    except OSError as error:
        return (error.strerror or str(error)).lower()
