"""Signals, clock and process around the state machine of `state.py`."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from agent.errors import EnvoyError
from agent.lifecycle.client import Admin, Observer
from agent.lifecycle.drain import QUIET_SECONDS
from agent.lifecycle.plan import Plan, describe, plan_document
from agent.lifecycle.process import FORWARDED, Envoy, Orphans
from agent.lifecycle.restarts import Restarts, describe_death, next_restart
from agent.lifecycle.state import ON_ITS_OWN, Command, Event, State, exit_code, step

log = logging.getLogger(__name__)

#: As the reference names them in its log.
SIGNAL_NAMES: Final = {signal.SIGTERM: "terminated", signal.SIGINT: "interrupt"}
#: Whoever started a process has fetched its status by then.
ORPHAN_SECONDS: Final = 1.0


class LifecycleSettings(NamedTuple):
    """What the life and the end of Envoy depend on."""

    admin: Admin
    drain_target: str
    plan: Plan
    #: Ports of Envoy's health and metrics listeners: their connections are not the application's.
    own_listeners: tuple[int, ...] = ()
    #: All ports of the mesh in this pod.
    own_ports: tuple[int, ...] = ()
    #: In a row. AGENT_ENVOY_RESTARTS.
    restarts: int = 0
    #: Envoy asked with SIGTERM is killed after this long.
    stop_seconds: float = 5.0
    #: The same after a second signal, or at the deadline.
    hurried_stop_seconds: float = 0.5
    #: An Envoy younger than this has no admin port yet; an older one has another than we think.
    starting_seconds: float = 5.0
    #: After a look at what goes on that failed.
    failure_pause_seconds: float = 1.0
    #: After which a drain that no signal has followed is worth a line (D20).
    forgotten_seconds: float = 600.0


class Surroundings(NamedTuple):
    """What the supervisor needs of the rest of the agent."""

    #: Starts another Envoy; EnvoyError if that cannot be done.
    start: Callable[[], Envoy]
    #: Told of each restart.
    restarted: Callable[[], None]
    #: Counts the processes that the kernel has killed here for want of memory.
    oom_kills: Callable[[], int]
    #: Chance, in [0, 1).
    rng: Callable[[], float]


class Orphanage:
    """Has orphans reaped, some time after a child died."""

    def __init__(self) -> None:
        self._orphans = Orphans()
        self._timer: asyncio.TimerHandle | None = None

    def child_died(self) -> None:
        """Take note of it."""
        if self._timer is None:
            self._start_timer()

    def close(self) -> None:
        """Reap no more."""
        if self._timer:
            self._timer.cancel()

    def _start_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(ORPHAN_SECONDS, self._reap)

    def _reap(self) -> None:
        self._timer = None
        if self._orphans.reap():
            self._start_timer()


class Supervisor:
    """Envoy's life as the rest of the agent sees it; without an Envoy, the agent's own."""

    def __init__(
        self, settings: LifecycleSettings, envoy: Envoy | None, around: Surroundings
    ) -> None:
        self._settings = settings
        self._envoy = envoy
        self._around = around
        self._state = State.RUNNING if envoy else State.PROXYLESS
        self._cause: str | None = None
        self._status = 0
        self._restarts = Restarts(settings.restarts)
        self._pause = 0.0  #: before the restart that is due
        self._starts = 1
        self._oom_kills = around.oom_kills()
        #: In the loop's time: when Envoy could read its configuration, and when the end was asked.
        self._started_at: float | None = None
        self._asked_at: float | None = None
        self._observer = Observer(
            settings.admin,
            settings.plan.condition,
            own_listeners=settings.own_listeners,
            own_ports=settings.own_ports,
            failure_pause_seconds=settings.failure_pause_seconds,
        )
        # Unbounded: signals, requests and timers are few, and none may wait for another.
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._drains: list[asyncio.Event] = []
        self._actions: dict[Command, Callable[[], Coroutine[None, None, None]]] = {
            Command.DRAIN_LISTENERS: self._drain_listeners,
            Command.WATCH_CONDITION: self._watch_condition,
            Command.START_DEADLINE: self._wait_for_deadline,
            Command.STOP_ENVOY: self._stop,
            Command.START_STOP_TIMER: self._wait_for_stop,
            Command.START_SHORT_STOP_TIMER: self._wait_shortly_for_stop,
            Command.KILL_ENVOY: self._kill,
            Command.START_PAUSE: self._wait_for_restart,
            Command.START_ENVOY: self._start,
        }

    def terminating(self) -> str | None:
        """Return why the agent is about to end, None while it is not."""
        return self._cause

    def starts(self) -> int:
        """Return how many Envoys there were: what was true of one is not of the next."""
        return self._starts

    def problem(self) -> str | None:
        """Return why there is no Envoy for now, None if there is one."""
        if self._state is not State.RESTARTING:
            return None
        return f"Envoy is restarted, {self._restarts.used} of {self._restarts.allowed} times"

    def document(self) -> dict[str, object]:
        """Return the plan and how far it is, as /debug/drain shows it."""
        waited = None if self._asked_at is None else round(self._now() - self._asked_at, 3)
        return {
            "plan": plan_document(self._settings.plan),
            "state": self._state.value,
            "cause": self._cause,
            "seconds_since_signal": waited,
            "still_active": self._observer.active,
        }

    def started(self) -> None:
        """Take note that Envoy can read its configuration from now on."""
        self._started_at = self._now()

    async def drain(self) -> None:
        """Have Envoy drain, and return once it was asked, whether or not it answered."""
        if self._state in (State.EXITED, State.PROXYLESS):
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
        log.info("termination plan %s", describe(self._settings.plan))
        before = self._state
        async with asyncio.TaskGroup() as tasks, self._signals(tasks):
            self._expect_exit()
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
        self._release_drains()
        return exit_code(before, self._status)

    @asynccontextmanager
    async def _signals(self, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        orphanage = Orphanage()
        for number in SIGNAL_NAMES:
            loop.add_signal_handler(number, self._signalled, number, tasks)
        for number in FORWARDED:
            loop.add_signal_handler(number, self._send, number)
        loop.add_signal_handler(signal.SIGCHLD, orphanage.child_died)
        held_back = signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNAL_NAMES)  # by process.py
        try:
            yield
        finally:
            # A late one must not take the place of the exit code that is known by now. Blocking it
            # is not enough: threads that were begun meanwhile would get it.
            signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
            for number in SIGNAL_NAMES:
                loop.add_signal_handler(number, _ignore)  # until the loop's end
            for number in (*FORWARDED, signal.SIGCHLD):
                loop.remove_signal_handler(number)
            orphanage.close()

    def _signalled(self, number: signal.Signals, tasks: asyncio.TaskGroup) -> None:
        log.info("received signal: %s", SIGNAL_NAMES[number])
        self._cause = self._cause or f"received signal: {SIGNAL_NAMES[number]}"
        if self._asked_at is None:
            self._asked_at = self._now()
        tasks.create_task(self._terminate())

    def _expect_exit(self) -> None:
        """Have Envoy reaped, and an event made of it, as soon as it is gone."""
        envoy = self._envoy
        if envoy is None:
            return
        loop = asyncio.get_running_loop()
        pidfd = envoy.pidfd

        def exited() -> None:
            loop.remove_reader(pidfd)
            self._status = envoy.reap()
            self._events.put_nowait(self._judge_exit())

        loop.add_reader(pidfd, exited)

    def _judge_exit(self) -> Event:
        if self._state not in ON_ITS_OWN:
            log.info("Envoy exited status=%d", self._status)
            return Event.ENVOY_EXITED
        kills = self._around.oom_kills()
        log.error("Envoy died: %s", describe_death(self._status, kills - self._oom_kills))
        if self._started_at is None:
            log.error(
                "it had not read its configuration: its own lines above say why, "
                "else see whether the binary runs, with --version"
            )
        self._oom_kills = kills
        lived = 0.0 if self._started_at is None else self._now() - self._started_at
        self._restarts, pause = next_restart(self._restarts, self._status, lived, self._around.rng)
        if pause is None:
            return Event.ENVOY_EXITED
        self._pause = pause
        return Event.ENVOY_CRASHED

    async def _wait_for_restart(self) -> None:
        log.warning("restarting Envoy retry_in_seconds=%.1f", self._pause)
        await asyncio.sleep(self._pause)
        self._events.put_nowait(Event.PAUSE_ELAPSED)

    async def _start(self) -> None:
        self._envoy = self._around.start()
        self._starts += 1
        self.started()
        self._around.restarted()
        self._expect_exit()

    async def _terminate(self) -> None:
        before_live = self._state is State.RUNNING and await self._is_before_live()
        self._events.put_nowait(Event.TERM_BEFORE_LIVE if before_live else Event.TERM_RECEIVED)

    async def _is_before_live(self) -> bool:
        if self._started_at is None:
            return True
        is_live = await self._settings.admin.is_live()
        if is_live is None:
            return self._now() - self._started_at < self._settings.starting_seconds
        return not is_live

    async def _drain_listeners(self) -> None:
        await self._sleep_until(self._settings.plan.drain_after_seconds)
        try:
            await self._settings.admin.drain(self._settings.drain_target)
            log.info("draining target=%s", self._settings.drain_target)
        except EnvoyError as error:
            log.warning("drain not confirmed, going on: %s", error)
        self._release_drains()
        if self._state is State.DRAINING:
            await asyncio.sleep(self._settings.forgotten_seconds)
            log.warning(
                "draining for %g seconds without a signal; only a restart ends it",
                self._settings.forgotten_seconds,
            )

    def _release_drains(self) -> None:
        for asked in self._drains:
            asked.set()
        self._drains.clear()

    async def _watch_condition(self) -> None:
        plan = self._settings.plan
        if plan.condition != "duration" and self._envoy:
            start = max(plan.drain_after_seconds, plan.watch_after_seconds - QUIET_SECONDS)
            await self._sleep_until(start)
            until = self._now() + plan.watch_after_seconds - self._seconds_since_asked()
            await self._observer.wait_until_over(self._envoy.pid, not_before=until)
        await self._sleep_until(plan.watch_after_seconds)
        self._events.put_nowait(Event.CONDITION_MET)

    async def _wait_for_deadline(self) -> None:
        await self._sleep_until(self._settings.plan.deadline_seconds)
        self._events.put_nowait(Event.DEADLINE_REACHED)

    async def _stop(self) -> None:
        self._send(signal.SIGTERM)

    async def _wait_for_stop(self) -> None:
        await asyncio.sleep(self._settings.stop_seconds)
        self._events.put_nowait(Event.STOP_ELAPSED)

    async def _wait_shortly_for_stop(self) -> None:
        await asyncio.sleep(self._settings.hurried_stop_seconds)
        self._events.put_nowait(Event.STOP_ELAPSED)

    async def _kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._envoy:
            self._envoy.send(number)

    async def _sleep_until(self, seconds: float) -> None:
        """Sleep until so long after the end was asked for; from now, if it was not."""
        await asyncio.sleep(max(seconds - self._seconds_since_asked(), 0))

    def _seconds_since_asked(self) -> float:
        return 0.0 if self._asked_at is None else self._now() - self._asked_at

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _ignore() -> None:
    """Take no notice of a signal, where its default would be the end."""
