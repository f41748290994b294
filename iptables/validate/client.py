"""Sends probes as if from outside: through a link of its own, which goes again at once.

Source: traffic-capture.md sections 12 and 17.16.
"""

import errno
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from iptables import client, netlink
from iptables.config import CaptureConfig
from iptables.errors import SystemRefusedError
from iptables.explain.flow import Endpoint
from iptables.netlink import FAMILY_NUMBERS, Family
from iptables.validate.outside import (
    ACK,
    ELSEWHERE,
    FAR,
    HERE,
    NEAR,
    NEAR_HARDWARE,
    RST,
    SYN,
    TYPES,
    Segment,
    add_address,
    add_link,
    add_neighbour,
    decode,
    encode,
    remove_link,
    set_up,
)
from iptables.validate.probes import Outcome, Probe

#: How long an answer may take. The kernel drops what a new link is to send for up to a second.
WAIT_SECONDS: Final = 1.5
PAUSE_SECONDS: Final = 0.05  # before it is asked again
SEQUENCE: Final = 1000
LARGEST: Final = 65536
#: linux/in.h and linux/in6.h: the socket may get what is for other addresses.
TRANSPARENT: Final = {4: (socket.IPPROTO_IP, 19), 6: (socket.IPPROTO_IPV6, 75)}


def from_outside(
    probes: Sequence[Probe], config: CaptureConfig, *, timeout_seconds: float
) -> Mapping[Probe, Outcome]:
    """Return what became of each probe; where none can be made, that it was not sent."""
    patience = min(timeout_seconds, WAIT_SECONDS)
    try:
        with _link() as index:
            return {probe: _outcome(probe, config, index, patience) for probe in probes}
    except (OSError, SystemRefusedError) as error:
        return dict.fromkeys(probes, Outcome(problem=str(error), is_sent=False))


@contextmanager
def _link() -> Iterator[int]:
    """Make the link for the block; it has the number of the near end."""
    client.change(remove_link())  # of a run that was killed
    _ask(add_link(), "making a link of type veth")
    try:
        for name in (NEAR, FAR):
            _ask(set_up(name), f"setting {name} up")
        links = map(netlink.decode_link, (each.body for each in client.dump(netlink.dump_links())))
        yield next(link.ifindex for link in links if link.name == NEAR)
    finally:
        client.change(remove_link())


def _ask(request: bytes, what: str) -> None:
    if number := client.change(request):
        raise SystemRefusedError(f"{what}: {client.reason(number)}")


def _outcome(probe: Probe, config: CaptureConfig, index: int, patience: float) -> Outcome:
    family = probe.family
    try:
        _ask(add_address(family, index), f"giving it the address {HERE[family]}")
        _ask(add_neighbour(family, index), f"giving it the neighbour {ELSEWHERE[family]}")
        with (
            socket.socket(FAMILY_NUMBERS[family], socket.SOCK_STREAM) as listener,
            socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(TYPES[family])) as far,
        ):
            _listen(listener, family, config)
            far.bind((FAR, TYPES[family]))
            return _connect(probe, listener, far, patience)
    except (OSError, SystemRefusedError) as error:
        number = error.errno if isinstance(error, OSError) else 0
        is_taken = number == errno.EADDRINUSE
        text = f"port {probe.port} is taken" if is_taken else os.strerror(number or 0)
        return Outcome(problem=text if number else str(error), is_sent=False)


def _listen(listener: socket.socket, family: Family, config: CaptureConfig) -> None:
    """Listen where REDIRECT sends what comes in by the link: at its own address."""
    listener.setblocking(False)  # noqa: FBT003 - its only argument
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if config.inbound.mode == "TPROXY":
        listener.setsockopt(*TRANSPARENT[family], 1)
    listener.bind((HERE[family], config.listeners.inbound_port))
    listener.listen()


def _connect(probe: Probe, listener: socket.socket, far: socket.socket, patience: float) -> Outcome:
    """Do a client's part of a handshake; return where it ended.

    Args:
        probe: what is to be proven.
        listener: where it should end.
        far: the far end of the link.
        patience: seconds to wait for an answer.
    """
    flow = probe.flow
    source = Endpoint(flow.source.address, 32768 + os.getpid() % 28000)
    syn = Segment(source, flow.destination, SYN, SEQUENCE)
    answer = None
    deadline = time.monotonic() + patience
    while not answer and time.monotonic() < deadline:
        _send(far, syn, probe.family)
        answer = _answer(far, syn)
    if not answer:
        return Outcome(problem=f"nothing within {patience:.1f} s", is_sent=False)
    if answer.flags & RST:
        return Outcome(problem=os.strerror(errno.ECONNREFUSED).lower())
    number = (answer.sequence + 1) % 2**32
    _send(far, Segment(source, flow.destination, ACK, SEQUENCE + 1, number), probe.family)
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    if poll.poll(patience * 1000):
        connection, peer = listener.accept()
        connection.close()
        if peer[1] == source.port:
            return Outcome(probe.port)
    _send(far, Segment(source, flow.destination, RST, SEQUENCE + 1), probe.family)
    return Outcome(problem="another program's listener")


def _send(far: socket.socket, segment: Segment, family: Family) -> None:
    far.sendto(encode(segment), (FAR, TYPES[family], 0, 0, NEAR_HARDWARE))


def _answer(far: socket.socket, asked: Segment) -> Segment | None:
    """Return the answer to a segment, None for silence until it is to be sent again."""
    deadline = time.monotonic() + PAUSE_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        far.settimeout(left)
        try:
            found = decode(far.recv(LARGEST))
        except TimeoutError:
            return None
        if found and (found.source, found.destination) == (asked.destination, asked.source):
            return found
    return None
