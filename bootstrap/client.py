"""Looks up the statsd server's name, because Envoy takes only an address.

Source: bootstrap.md section 3.5.
"""

import socket
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread

from bootstrap.addresses import ip_version, join_host_port, split_host_port
from bootstrap.config import ProxyConfig, with_statsd_address

Answer = list[str] | OSError
LookUp = Callable[[str], list[str]]


def addresses_of(host: str) -> list[str]:
    """Return the host's addresses in the resolver's order, however long that takes.

    Raises:
        OSError: nobody knows the name.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    return [str(address[0]) for *_, address in found]


def resolve_statsd(
    config: ProxyConfig, *, timeout_seconds: float = 15.0, look_up: LookUp = addresses_of
) -> tuple[ProxyConfig, list[str]]:
    """Return the configuration with statsd's address in place of its name, and warnings.

    The first IPv4 address is preferred. Without an answer in time statsd is off.
    """
    text = config.statsd_udp_address
    if not text:
        return config, []
    try:
        host, port = split_host_port(text)
        found = [host] if ip_version(host) else _ask(look_up, host, timeout_seconds)
    except (ValueError, OSError) as error:
        warning = f"statsdUdpAddress={text!r}: {error}; statsd is off"
        return with_statsd_address(config, ""), [warning]
    first = next((address for address in found if ip_version(address) == 4), found[0])  # noqa: PLR2004 - IPv4
    return with_statsd_address(config, join_host_port(first, port)), []


def _ask(look_up: LookUp, host: str, timeout_seconds: float) -> list[str]:
    answers: SimpleQueue[Answer] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(look_up(host))
        except OSError as error:
            answers.put(error)

    # The resolver has limits of its own, longer ones; its thread is left to them.
    Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=timeout_seconds)
    except Empty:
        raise TimeoutError(f"no answer within {timeout_seconds:g}s") from None
    if isinstance(answer, OSError):
        raise answer
    return answer
