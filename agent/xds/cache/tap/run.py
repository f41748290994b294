"""Envoy's end of a stream: what passes is recorded, and said again if somebody else must answer."""

import asyncio
import itertools
from collections.abc import Callable

from agent.protobuf.wire import WireError
from agent.xds.cache.ledger import Ledger, has_configuration
from agent.xds.cache.process import Recorder
from agent.xds.discovery import Kind, read_node_id, read_response
from agent.xds.server import Downstream


class Tap:
    """One stream, on which nobody has answered yet.

    It is settled who answers once a response was passed on, and where Envoy has a configuration,
    so that it can wait for the control plane, or has left. Until then all that Envoy says is kept.
    """

    def __init__(
        self,
        kind: Kind,
        downstream: Downstream,
        recorder: Recorder,
        *,
        numbers: "itertools.count[int]",
        answered: Callable[[], None],
    ) -> None:
        """Begin with a new stream.

        Args:
            kind: SotW or delta.
            downstream: Envoy's end of it.
            recorder: takes what Envoy accepts.
            numbers: what responses are numbered by, across streams.
            answered: told of each response of the control plane.
        """
        self.settled = asyncio.Event()
        self.asked = asyncio.Event()  #: Envoy has said who it is, or has left
        self._kind = kind
        self._downstream = downstream
        self._recorder = recorder
        self._answered = answered
        self._ledger = Ledger(kind, numbers)
        # Unbounded: the relay has a queue of its own, with a limit, into which all of it goes.
        self._requests: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._said: list[bytes | None] = []
        self._is_muted = False

    async def listen(self) -> None:
        """Take Envoy's requests until it leaves."""
        while (raw := await self._downstream.read()) is not None:
            self._note(raw)
            self._take(raw)
            self.asked.set()
        self._take(None)
        self._settle()
        self.asked.set()

    def recorded(self) -> Downstream:
        """Return the end for the control plane."""
        return Downstream(self._requests.get, self._write, self._downstream.limit_bytes)

    def repeated(self) -> Downstream:
        """Return the end for whoever answers in its place, who hears all that was said."""
        self._is_muted = True
        self._requests = asyncio.Queue()
        for raw in self._said:
            self._requests.put_nowait(raw)
        self._settle()
        return self._downstream._replace(read=self._requests.get)

    def close(self) -> None:
        """Record that the stream has ended."""
        self._recorder.record(self._ledger.closed())

    def _note(self, raw: bytes) -> None:
        """Record a request."""
        if len(raw) > self._downstream.limit_bytes:
            return
        try:
            if not self.settled.is_set():
                self._recorder.begin(read_node_id(self._kind, raw))
                if has_configuration(self._kind, raw):
                    self._settle()
            self._recorder.record(self._ledger.requested(raw))
        except WireError:
            return  # whoever answers will say so

    def _take(self, raw: bytes | None) -> None:
        if not self.settled.is_set():
            self._said.append(raw)
        self._requests.put_nowait(raw)

    def _settle(self) -> None:
        self._said.clear()
        self.settled.set()

    async def _write(self, raw: bytes) -> None:
        """Pass a response on, and write it down meanwhile: it is not held for longer than that."""
        if self._is_muted:
            await asyncio.Event().wait()  # somebody else answers: the caller is about to be ended
        self._settle()
        self._answered()
        recording = self._recorder.record(self._ledger.responded(read_response(raw), raw))
        writing = self._downstream.write(raw)
        del raw
        await writing
        if recording is not None:
            await self._recorder.written(recording)
