"""Serves a snapshot to Envoy as a control plane would, and follows a directory's changes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import grpc

from agent.protobuf.wire import WireError
from agent.xds.discovery import Kind, read_response
from agent.xds.endings import ENVOY_LEFT, Ending, downstream_write_failed, too_long, unreadable
from agent.xds.resources import short_name
from agent.xds.server import Downstream
from agent.xds.settings import BUILTIN, XdsSettings
from agent.xds.snapshot import ServedStream, Snapshot

if TYPE_CHECKING:
    from agent.xds.local.files import ResourceDirectory
    from agent.xds.monitor.run import Observer

log = logging.getLogger(__name__)

DIRECTORY: Final = "local resources"
WATCH: Final = "watch"
RETRY_SECONDS: Final = 30.0

#: Says what is wrong with a thing, or that nothing is any more.
Note = Callable[[str, str | None], None]
Observing = Callable[[int, Kind], "Observer"]


class LocalSession:
    """One stream of Envoy."""

    def __init__(
        self, backend: "LocalBackend", kind: Kind, downstream: Downstream, observer: "Observer"
    ) -> None:
        self._backend = backend
        self._kind = kind
        self._downstream = downstream
        self._observer = observer
        self._stream = ServedStream(kind, backend.snapshot)
        self._due = asyncio.Event()

    def pumps(self) -> tuple[Coroutine[Any, Any, Ending | None], ...]:
        """Return what runs at once."""
        return self._receive(), self._send()

    def replace(self, snapshot: Snapshot) -> None:
        """Serve another snapshot from now on."""
        self._stream.replace(snapshot)
        self._due.set()

    async def close(self) -> None:
        """Be told of no further snapshot, and hold none: what ends a task may keep its frames."""
        self._observer.close()
        self._backend.sessions.discard(self)
        self._stream = ServedStream(self._kind, None)

    async def _receive(self) -> Ending:
        while (raw := await self._downstream.read()) is not None:
            if len(raw) > self._downstream.limit_bytes:
                return too_long(len(raw), self._downstream.limit_bytes)
            try:
                answer = self._stream.receive_request(raw)
                self._observer.requested(raw)
            except WireError as error:
                return unreadable("Envoy", str(error))
            if answer is not None:
                self._backend.answered(answer.type_url, answer.error)
            self._due.set()
        return ENVOY_LEFT

    async def _send(self) -> Ending:
        while True:
            await self._due.wait()
            self._due.clear()
            while (response := self._stream.next_response()) is not None:
                self._observer.responded(response)
                try:
                    await self._downstream.write(response)
                except grpc.aio.BaseError as error:
                    return downstream_write_failed(read_response(response).type_url, str(error))


class LocalBackend:
    """Answers Envoy from the latest snapshot; holds back every answer until there is one."""

    def __init__(self, note: Note, observing: Observing, snapshot: Snapshot | None = None) -> None:
        self._note = note
        self._observing = observing
        self.snapshot = snapshot
        self.sessions: set[LocalSession] = set()
        self._unwatched: str | None = None
        self._refused: str | None = None

    async def open(self, kind: Kind, downstream: Downstream, number: int) -> LocalSession:
        """Return a session for a stream of Envoy."""
        session = LocalSession(self, kind, downstream, self._observing(number, kind))
        self.sessions.add(session)
        return session

    def answered(self, type_url: str, error: str | None) -> None:
        """Take Envoy's ACK or NACK."""
        if error is None:
            self._note(type_url, None)
            return
        problem = f"Envoy refused {short_name(type_url)}: {error}"
        log.error("refused by Envoy type=%s reason=%r", short_name(type_url), error)
        self._note(type_url, problem)

    def serve(self, snapshot: Snapshot) -> None:
        """Serve another snapshot from now on."""
        log.info("serving local resources version=%s", snapshot.version)
        self._note(DIRECTORY, None)
        self._refused = None
        self.snapshot = snapshot
        for session in self.sessions:
            session.replace(snapshot)

    def refuse(self, problem: str) -> None:
        """Say why there is no other snapshot; the last one stays."""
        kept = f"version {self.snapshot.version} stays in force" if self.snapshot else "none served"
        if problem != self._refused:  # what does not change is looked at again and again
            log.error("local resources not taken (%s) reason=%r", kept, problem)
        self._refused = problem
        self._note(DIRECTORY, f"{DIRECTORY}: {problem}")

    def unwatched(self, problem: str | None) -> None:
        """Say why changes are noticed late, none if they are not."""
        if problem is not None and problem != self._unwatched:
            log.warning("local resources are not watched reason=%r", problem)
        self._unwatched = problem
        self._note(WATCH, problem and f"{DIRECTORY}: {problem}")


@asynccontextmanager
async def local_backend(
    settings: XdsSettings, note: Note, observing: Observing
) -> AsyncIterator[LocalBackend]:
    """Provide what answers Envoy by AGENT_LOCAL_XDS.

    Raises:
        AgentError: there is no such directory.
    """
    if settings.local == BUILTIN:
        from agent.xds.local.passthrough import passthrough  # noqa: PLC0415 - only here

        ipv4, ipv6, tproxy = settings.ipv4, settings.ipv6, settings.tproxy
        snapshot = passthrough(ipv4=ipv4, ipv6=ipv6, tproxy=tproxy)
        yield LocalBackend(note, observing, snapshot)
        return
    from agent.xds.local.files import ResourceDirectory  # noqa: PLC0415 - a slow import

    directory = ResourceDirectory(settings.local)
    backend = LocalBackend(note, observing)
    # No task group: it would wrap what the body raises in an exception group.
    following = asyncio.create_task(_follow(directory, backend))
    try:
        yield backend
    finally:
        following.cancel()
        await asyncio.wait((following,))


async def _follow(directory: "ResourceDirectory", backend: LocalBackend) -> None:
    """Follow the directory for ever, whatever becomes of following it."""
    from agent.xds.local.files import follow  # noqa: PLC0415 - as above

    while True:
        try:
            await follow(directory, backend)
        except Exception as error:
            log.exception("local resources are not followed retry_in_seconds=%g", RETRY_SECONDS)
            backend.refuse(f"not followed for {RETRY_SECONDS:g} s: {error!r}")
        await asyncio.sleep(RETRY_SECONDS)
