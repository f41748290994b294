"""Makes the probes' connections to listeners of its own, and sees which of them answers each.

Source: traffic-capture.md sections 12 and 17.16.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Final, NamedTuple

from iptables.config import CaptureConfig, Settings
from iptables.decide import Plans
from iptables.explain.chains import planned_chains, planned_native_chains
from iptables.log import Log
from iptables.netlink import FAMILY_NUMBERS, Family, InterfaceAddress
from iptables.normal import Names
from iptables.plan import plan as make_plan
from iptables.process import effective_capabilities
from iptables.validate.probes import (
    LOCALHOST,
    NO_LISTENER,
    Outcome,
    Probe,
    Sender,
    failures,
    has_failed,
    plan_probes,
    unproven,
)

#: How often a connection is tried again that is refused: rules that are not there will not come.
ATTEMPTS: Final = 3
PAUSE_SECONDS: Final = 0.1
#: A listener beside Envoy's, of the same user, would take the application's connections, too.
IN_USE: Final = "; validate before Envoy starts, or look at a running pod with --explain and --live"
#: After which a connection that no listener here has seen is taken for another program's.
SEEN_SECONDS: Final = 0.25
#: How long what is silent is waited for once something has failed.
GRACE_SECONDS: Final = 0.3
BACKLOG: Final = 16
CAP_SETGID, CAP_SETUID, CAP_NET_ADMIN, CAP_NET_RAW = 6, 7, 12, 13
APPLICATION: Final = 65534  # nobody, who is no proxy
#: The header of a DNS message without a question: nobody can take offence.
EMPTY_QUERY: Final = bytes(12)
KINDS: Final = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}
#: The host cannot send there, whatever the rules.
UNSENT: Final = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL, errno.EINVAL)

#: Address family, protocol and source port.
Key = tuple[Family, str, int]


class Listener(NamedTuple):
    """A socket where probes may arrive."""

    socket: socket.socket
    family: Family
    protocol: str
    port: int


def validate(
    plans: Plans,
    settings: Settings,
    addresses: Sequence[InterfaceAddress],
    log: Log,
    *,
    names: Names,
    probe_port: int,
    timeout_seconds: float,
) -> bool:
    """Prove that traffic is captured as planned; return whether it is, the log says why not.

    Args:
        plans: the rules of each family.
        settings: what they are made from.
        addresses: of this network namespace.
        log: where expected and seen go.
        names: numbers of the users and groups that rules name.
        probe_port: where connections go that any port proves.
        timeout_seconds: how long to wait for what does not answer.
    """
    log.write("info", "Starting iptables validation. This check verifies that rules are in place.")
    config = settings.config
    chains = {family: planned_chains(planned, names) for family, planned in plans.items()}
    if settings.actions.native_nftables:
        planned = planned_native_chains(make_plan(config, *config.families.captured), names)
        chains = dict.fromkeys(plans, planned)
    who = senders(config, names)
    plan = plan_probes(config, chains, addresses, who, probe_port)
    may_inject = _has(CAP_NET_ADMIN, CAP_NET_RAW)
    if text := unproven(plan, who, may_inject=may_inject):
        log.write("info", text)
    if not plan.probes:
        log.write("error", "nothing is captured that could be proven here")
        return False
    outcomes = dict(run_probes(plan.probes, config, log, timeout_seconds=timeout_seconds))
    if plan.outside and may_inject:
        from iptables.validate.client import from_outside  # noqa: PLC0415 - few may do it

        outcomes |= from_outside(plan.outside, config, timeout_seconds=timeout_seconds)
    for probe, outcome in outcomes.items():
        is_unproven = not probe.sender and not outcome.is_sent
        seen = f"not proven: {outcome.text}" if is_unproven else f"seen {outcome.text}"
        log.write("info", f"{probe.text}: expected port {probe.port}, {seen}")
    failed = failures(outcomes)
    for line in failed:
        log.write("error", line)
    if not failed:
        log.write("info", "Validation passed, iptables rules established")
    return not failed


def senders(config: CaptureConfig, names: Names) -> list[Sender]:
    """Return as whom connections can be made: as this process, or as anybody if that is allowed."""
    current = Sender(os.geteuid(), os.getegid())
    if not _has(CAP_SETGID, CAP_SETUID):
        return [current]
    uid, gid = config.proxy.uids[0], config.proxy.gids[0]
    proxy = Sender(_number("--uid-owner", uid, names), _number("--gid-owner", gid, names))
    group = next(iter(config.outbound.groups.items), str(APPLICATION))
    application = Sender(APPLICATION, _number("--gid-owner", group, names))
    return [current, proxy, application]


def _number(option: str, owner: str, names: Names) -> int:
    return int(names.get((option, owner), owner).partition("-")[0])


def _has(*numbers: int) -> bool:
    """Return whether this process has all of these capabilities, False if that is unknown."""
    capabilities = effective_capabilities() or 0
    return all(capabilities >> number & 1 for number in numbers)


def run_probes(
    probes: Sequence[Probe], config: CaptureConfig, log: Log, *, timeout_seconds: float
) -> Mapping[Probe, Outcome]:
    """Return what became of each probe."""
    with ExitStack() as stack:
        listeners = list(_listeners(probes, config, stack, log))
        if not listeners:
            return dict.fromkeys(probes, Outcome(problem=NO_LISTENER))
        return asyncio.run(_Run(probes).run(listeners, timeout_seconds))


def _listeners(
    probes: Sequence[Probe], config: CaptureConfig, stack: ExitStack, log: Log
) -> Iterator[Listener]:
    """Yield listeners where captured connections may end, expected or not."""
    ports = (config.listeners.outbound_port, config.listeners.inbound_port)
    wanted = {(probe.family, "tcp", port) for probe in probes for port in ports}
    wanted |= {(probe.family, probe.flow.protocol, probe.port) for probe in probes}
    for family, protocol, port in sorted(wanted):
        made = stack.enter_context(socket.socket(FAMILY_NUMBERS[family], KINDS[protocol]))
        try:
            made.setblocking(False)  # noqa: FBT003 - its only argument
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            made.bind((LOCALHOST[family], port))
            if protocol == "tcp":
                made.listen(BACKLOG)
        except OSError as error:
            hint = IN_USE if error.errno == errno.EADDRINUSE else ""
            problem = f"cannot listen on port {port} ({protocol}): {error.strerror}{hint}"
            log.write("error", problem)
            continue
        yield Listener(made, family, protocol, port)


class _Run:
    """All probes at once."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self.probes = probes
        self.outcomes: dict[Probe, Outcome] = {}
        self.arrivals: dict[Key, asyncio.Future[int]] = {}  #: which listener saw a connection
        self.has_failed = asyncio.Event()

    async def run(
        self, listeners: Sequence[Listener], timeout_seconds: float
    ) -> Mapping[Probe, Outcome]:
        """Return the outcomes once all are known, or one has failed, or time is up."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        background = [asyncio.ensure_future(self._accept(listener)) for listener in listeners]
        asking = [asyncio.ensure_future(self._note(probe)) for probe in self.probes]
        failing = asyncio.ensure_future(self.has_failed.wait())
        everything = asyncio.gather(*asking)
        await asyncio.wait(
            (everything, failing), timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if self.has_failed.is_set():  # what is silent until now need not be waited for
            left = started + timeout_seconds - loop.time()
            await asyncio.wait(asking, timeout=min(GRACE_SECONDS, max(left, 0)))
        for listener in listeners:  # else asyncio may hand what arrives now to a cancelled task
            loop.remove_reader(listener.socket)
        tasks: list[asyncio.Future[Any]] = [*background, *asking, failing, everything]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        waited = min(loop.time() - started, timeout_seconds)
        silence = Outcome(problem=f"nothing within {waited:.1f} s")
        return {probe: self.outcomes.get(probe, silence) for probe in self.probes}

    async def _accept(self, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                if listener.protocol == "udp":
                    _, address = await loop.sock_recvfrom(listener.socket, 512)
                else:
                    connection, address = await loop.sock_accept(listener.socket)
                    connection.close()
            except OSError:  # it is gone again, or this process has too many files
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            arrival = self.arrivals.get((listener.family, listener.protocol, address[1]))
            if arrival and not arrival.done():
                arrival.set_result(listener.port)

    async def _note(self, probe: Probe) -> None:
        outcome = Outcome(problem=probe.obstacle)
        if not probe.obstacle:
            outcome = await self._outcome(probe)
        self.outcomes[probe] = outcome
        if has_failed(probe, outcome):
            self.has_failed.set()

    async def _outcome(self, probe: Probe) -> Outcome:
        refusals = 0
        while True:
            try:
                port = await self._ask(probe)
            except OSError as error:
                refusals += 1
                if refusals == ATTEMPTS:
                    number = error.errno or 0
                    return Outcome(
                        problem=os.strerror(number).lower(), is_sent=number not in UNSENT
                    )
            else:
                if port:
                    return Outcome(port)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _ask(self, probe: Probe) -> int:
        """Return which listener sees a connection, 0 for another program's or none."""
        loop = asyncio.get_running_loop()
        flow = probe.flow
        with _as(probe.sender) if probe.sender else nullcontext():
            client = socket.socket(FAMILY_NUMBERS[probe.family], KINDS[flow.protocol])
        with client:
            client.setblocking(False)  # noqa: FBT003 - its only argument
            client.bind((str(flow.source.address), 0))
            arrival: asyncio.Future[int] = loop.create_future()
            self.arrivals[probe.family, flow.protocol, client.getsockname()[1]] = arrival
            target = (str(flow.destination.address), flow.destination.port)
            await loop.sock_connect(client, target)
            if flow.protocol == "udp":
                await loop.sock_sendall(client, EMPTY_QUERY)
            await asyncio.wait((arrival,), timeout=SEEN_SECONDS)
            return arrival.result() if arrival.done() else 0


@contextmanager
def _as(sender: Sender) -> Iterator[None]:
    """Be another user: a socket belongs to who makes it, whoever uses it then."""
    uid, gid = os.geteuid(), os.getegid()
    if sender == (uid, gid):
        yield
        return
    os.setegid(sender.gid)
    try:
        os.seteuid(sender.uid)
        try:
            yield
        finally:
            os.seteuid(uid)
    finally:
        os.setegid(gid)
