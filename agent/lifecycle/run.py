"""Signals, clock and process around the state machine of `state.py`."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import NamedTuple

from agent.errors import EnvoyError
from agent.lifecycle.client import Admin
from agent.lifecycle.drain import MAX_FAILURES, DrainSettings, active_connections
from agent.lifecycle.process import Envoy
from agent.lifecycle.state import Command, Event, State, exit_code, step

log = logging.getLogger(__name__)

SIGNAL_NAMES = {signal.SIGTERM: "terminated", signal.SIGINT: "interrupt"}
POLL_SECONDS = 1.0


class LifecycleSettings(NamedTuple):
    """What the end of Envoy depends on."""

    admin: Admin
    drain_target: str
    drain: DrainSettings


class Supervisor:
    """Envoy's life as the rest of the agent sees it."""

    def __init__(self, settings: LifecycleSettings, envoy: Envoy) -> None:
        self._settings = settings
        self._envoy = envoy
        self._state = State.RUNNING
        self._cause: str | None = None
        self._status = 0
        # Unbounded: signals, requests and timers are few, and none may wait for another.
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._drains: list[asyncio.Event] = []
        self._actions: dict[Command, Callable[[], Coroutine[None, None, None]]] = {
            Command.DRAIN_LISTENERS: self._drain_listeners,
            Command.START_DRAIN_TIMER: self._wait_for_drain,
            Command.STOP_ENVOY: self._stop,
            Command.START_STOP_TIMER: self._wait_for_stop,
            Command.START_SHORT_STOP_TIMER: self._wait_shortly_for_stop,
            Command.KILL_ENVOY: self._kill,
        }

    def terminating(self) -> str | None:
        """Return why the agent is about to end, None while it is not."""
        return self._cause

    async def drain(self) -> None:
        """Have Envoy drain, and return once it was asked, whether or not it answered."""
        if self._state is State.EXITED:
            return
        asked = asyncio.Event()
        self._drains.append(asked)
        self._events.put_nowait(Event.DRAIN_REQUESTED)
        await asked.wait()  # set when Envoy was asked, or is gone; both are bounded

    def quit(self) -> None:
        """End Envoy without draining."""
        self._cause = self._cause or "/quitquitquit called"
        self._events.put_nowait(Event.QUIT_REQUESTED)

    async def run(self) -> int:
        """Supervise until Envoy is gone and reaped; return the agent's exit code."""
        before = self._state
        async with asyncio.TaskGroup() as tasks, self._watching(tasks):
            running: list[asyncio.Task[None]] = []
            while self._state is not State.EXITED:
                event = await self._events.get()
                before = self._state
                self._state, commands = step(before, event)
                if self._state is not before:
                    log.info("state=%s cause=%r", self._state.value, event.value)
                running += [tasks.create_task(self._actions[command]()) for command in commands]
            for task in running:
                task.cancel()
        self._status = self._envoy.reap()
        self._release_drains()
        self._log_exit(before)
        return exit_code(before, self._status)

    @asynccontextmanager
    async def _watching(self, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def exited() -> None:
            loop.remove_reader(self._envoy.pidfd)
            self._events.put_nowait(Event.ENVOY_EXITED)

        def signalled(number: signal.Signals) -> None:
            log.info("received signal: %s", SIGNAL_NAMES[number])
            self._cause = self._cause or f"received signal: {SIGNAL_NAMES[number]}"
            tasks.create_task(self._terminate())

        loop.add_reader(self._envoy.pidfd, exited)
        for number in SIGNAL_NAMES:
            loop.add_signal_handler(number, signalled, number)
        try:
            yield
        finally:
            for number in SIGNAL_NAMES:
                loop.remove_signal_handler(number)

    async def _terminate(self) -> None:
        live = self._state is not State.RUNNING or await self._settings.admin.is_live()
        self._events.put_nowait(Event.TERM_RECEIVED if live else Event.TERM_BEFORE_LIVE)

    async def _drain_listeners(self) -> None:
        try:
            await self._settings.admin.drain(self._settings.drain_target)
            log.info("draining target=%s", self._settings.drain_target)
        except EnvoyError as error:
            log.warning("drain not confirmed, going on: %s", error)
        self._release_drains()

    def _release_drains(self) -> None:
        for asked in self._drains:
            asked.set()
        self._drains.clear()

    async def _wait_for_drain(self) -> None:
        drain = self._settings.drain
        if drain.exit_on_idle:
            await asyncio.sleep(drain.minimum_seconds)
            await self._wait_for_idle()
        else:
            await asyncio.sleep(drain.termination_seconds)
        self._events.put_nowait(Event.DRAIN_ELAPSED)

    async def _wait_for_idle(self) -> None:
        failures = 0
        while failures < MAX_FAILURES:
            await asyncio.sleep(POLL_SECONDS)
            try:
                stats = await self._settings.admin.connections()
            except EnvoyError as error:
                failures += 1
                log.warning("connections unknown failures=%d: %s", failures, error)
                continue
            failures = 0
            active = active_connections(stats, self._settings.drain.ignored_ports, _warn_line)
            if active <= 0:
                return
            log.info("still connected connections=%d", active)

    async def _stop(self) -> None:
        self._envoy.send(signal.SIGTERM)

    async def _wait_for_stop(self) -> None:
        await asyncio.sleep(self._settings.drain.stop_seconds)
        self._events.put_nowait(Event.STOP_ELAPSED)

    async def _wait_shortly_for_stop(self) -> None:
        await asyncio.sleep(self._settings.drain.hurried_stop_seconds)
        self._events.put_nowait(Event.STOP_ELAPSED)

    async def _kill(self) -> None:
        self._envoy.send(signal.SIGKILL)

    def _log_exit(self, before: State) -> None:
        if exit_code(before, self._status) == 0:
            log.info("Envoy exited status=%d", self._status)
            return
        hint = ""
        if self._status == -signal.SIGKILL:
            hint = "; a kill by signal 9 is often the kernel's, out of memory"
        log.error("Envoy exited by itself status=%d%s", self._status, hint)


def _warn_line(line: str) -> None:
    log.warning("not a stat, skipped line=%r", line)
