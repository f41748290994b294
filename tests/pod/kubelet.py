"""A kubelet for tests: runs one pod as a node would, from its first container to its last exit.

What it does in which order is Kubernetes' own: init containers one after another, a native sidecar
among them until it has started; then the containers, each after the hook of the one before; probes
from the node; at the end the hooks and signals of all containers at once, native sidecars after all
others and in reverse, SIGKILL for what outlives the grace period. Backoffs, thresholds and defaults
are the real ones. What no manifest here needs is left out.
"""

import asyncio
import contextlib
import itertools
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from tests.pod.decisions import backoff_seconds, restarts, thresholds
from tests.pod.objects import Container, Handler, Policy, Probe, Workload
from tests.pod.probing import Verdict, ask

#: A container always gets so long to end, even when its grace period was used up by its hook.
MINIMUM_GRACE_SECONDS: Final = 2.0
#: How often a kubelet looks its containers over.
RELIST_SECONDS: Final = 1.0
#: The exit code of a container that could not be started.
START_FAILED: Final = 128
#: Of a hook after the start: a kubelet waits for it for ever.
FOR_EVER: Final = 1e9


class StartError(Exception):
    """A container could not be started."""


class Process(Protocol):
    """A container that runs."""

    async def wait(self) -> int:
        """Return the exit code once it has ended."""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its first process."""

    async def run(self, argv: Sequence[str]) -> tuple[int, str]:
        """Return the exit code and the output of a program run in it."""


class Runtime(Protocol):
    """Starts containers."""

    async def start(self, container: Container, attempt: int) -> Process:
        """Return a container that has begun."""


class Event(NamedTuple):
    """Something that happened."""

    at: float  #: seconds, by CLOCK_MONOTONIC
    container: str  #: empty: the pod
    what: str


class Status:
    """One container of a pod, through all of its restarts."""

    def __init__(self, container: Container) -> None:
        self.container = container
        self.process: Process | None = None
        self.started = False  #: its hook and its startup probe are done
        self.ready = False
        self.codes: list[int] = []  #: of its ends, in order
        self.finished = False  #: it will not run again
        self.hooked = asyncio.Event()  #: its first hook after the start is over
        self.first_started = asyncio.Event()
        self.first_done = asyncio.Event()  #: of an init container: the next one's turn
        self.ended = asyncio.Event()  #: it does not run now, nor is it made
        self.ended.set()
        self.given_up = asyncio.Event()  #: it is not to run again, whatever its policy
        self.last_said = ""  #: by its last failed probe or hook

    @property
    def restarts(self) -> int:
        return len(self.codes) - int(self.finished)

    @property
    def failed(self) -> bool:
        return self.finished and bool(self.codes) and self.codes[-1] != 0


class Kubelet:
    """Runs a pod; make it by `running`."""

    def __init__(
        self,
        workload: Workload,
        ip: str,
        runtime: Runtime,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.workload = workload
        self.ip = ip
        self.events: list[Event] = []
        self.statuses = {each.name: Status(each) for each in workload.all_containers()}
        self.phase = "Pending"
        self._runtime = runtime
        self._on_change = on_change
        self._changed = asyncio.Event()
        self._grace: float | None = None  #: set: the pod is to end
        self._ending = False
        self._tasks = asyncio.TaskGroup()

    @property
    def lasting(self) -> list[Status]:
        """Return the containers that run as long as the pod: native sidecars and the others."""
        sidecars = (each for each in self.workload.init_containers if each.restartable)
        return [self.statuses[each.name] for each in (*sidecars, *self.workload.containers)]

    @property
    def is_ready(self) -> bool:
        return self.phase == "Running" and all(each.ready for each in self.lasting)

    @property
    def is_endpoint(self) -> bool:
        """Return whether its services send requests to it."""
        return self.is_ready and self._grace is None

    def process(self, name: str) -> Any:  # noqa: ANN401 - whatever the runtime returned
        """Return a container that runs."""
        found = self.statuses[name].process
        assert found, f"{name} does not run"
        return found

    async def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Return once something holds of this pod; TimeoutError, with what it did, if never."""
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"not so after {seconds:g} s: {self.describe()}") from None

    async def ready(self, seconds: float = 60) -> None:
        await self.until(lambda: self.is_ready or self.is_over, seconds)
        assert self.is_ready, self.describe()

    @property
    def is_over(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    async def over(self, seconds: float = 60) -> None:
        """Return once everything in the pod has ended."""
        await self.until(lambda: self.is_over, seconds)

    def delete(self, grace_seconds: float | None = None) -> None:
        """Have the pod end, as when its object is deleted."""
        self._grace = self.workload.grace_seconds if grace_seconds is None else grace_seconds
        self._note("", "deleted")

    def describe(self) -> str:
        """Return what has happened so far, a line each."""
        first = self.events[0].at if self.events else 0
        lines = [f"{each.at - first:8.3f} {each.container:16} {each.what}" for each in self.events]
        said = [f"{n}: {s.last_said}" for n, s in self.statuses.items() if s.last_said]
        return "\n".join((f"{self.workload.name} is {self.phase}", *lines, *said))

    def _note(self, container: str, what: str) -> None:
        self.events.append(Event(time.monotonic(), container, what))
        self._changed.set()
        self._on_change()

    async def live(self) -> None:
        """Run the pod until everything in it has ended."""
        self._note("", "created")
        async with asyncio.TaskGroup() as self._tasks:
            beginning = self._tasks.create_task(self._begin())
            await self.until(self._is_to_end, FOR_EVER)
            self._ending = True
            beginning.cancel()
            await self._end(self.workload.grace_seconds if self._grace is None else self._grace)
        apps = [self.statuses[each.name] for each in self.workload.containers]
        ok = all(each.codes and not each.failed for each in apps)
        self.phase = "Succeeded" if ok else "Failed"
        self._note("", self.phase.lower())

    def _is_to_end(self) -> bool:
        """Return whether it is to end: deleted, failed for good, or done."""
        inits = (self.statuses[each.name] for each in self.workload.init_containers)
        done = all(self.statuses[each.name].finished for each in self.workload.containers)
        return self._grace is not None or done or any(each.failed for each in inits)

    async def _begin(self) -> None:
        for container in self.workload.init_containers:
            status = self.statuses[container.name]
            self._tasks.create_task(self._supervise(status))
            await (status.first_started if container.restartable else status.first_done).wait()
        self.phase = "Running"
        for container in self.workload.containers:
            status = self.statuses[container.name]
            self._tasks.create_task(self._supervise(status))
            await status.hooked.wait()

    async def _supervise(self, status: Status) -> None:
        """Run a container, again and again if its pod's policy says so."""
        policy = self._policy(status.container)
        while not status.finished:
            code = await self._run_once(status)
            status.codes.append(code)
            status.finished = self._ending or not restarts(policy, code)
            if status.finished and code == 0:
                status.first_done.set()
            self._note(status.container.name, f"exit {code}")
            if not status.finished:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(backoff_seconds(len(status.codes))):
                        await status.given_up.wait()

    def _policy(self, container: Container) -> Policy:
        if container.restartable:
            return "Always"
        is_init = container in self.workload.init_containers
        if is_init and self.workload.policy == "Always":
            return "OnFailure"  # its success is what the next one waits for
        return self.workload.policy

    async def _run_once(self, status: Status) -> int:
        """Run a container until it ends; return its exit code."""
        container = status.container
        self._note(container.name, "creating")
        status.ended.clear()
        try:
            process = await self._runtime.start(container, len(status.codes))
        except StartError as error:
            status.last_said = str(error)
            status.ended.set()
            return START_FAILED
        status.process = process
        self._note(container.name, "running")
        care = self._tasks.create_task(self._look_after(status, process))
        try:
            return await process.wait()
        finally:
            process.signal(signal.SIGKILL)  # when it is us who end
            care.cancel()
            status.process, status.started, status.ready = None, False, False
            status.hooked.set()
            status.ended.set()

    async def _look_after(self, status: Status, process: Process) -> None:
        """Run a container's hook, then its probes, for as long as it runs."""
        container, began = status.container, time.monotonic()
        if container.post_start:
            verdict = await self._ask(container.post_start, process, FOR_EVER)
            self._note(container.name, f"post-start hook {'done' if verdict.passed else 'failed'}")
            if not verdict.passed:
                status.last_said = verdict.said
                await self._stop(status, time.monotonic() + self.workload.grace_seconds, ())
                return
        status.hooked.set()
        if container.startup:
            self._note(container.name, "asked whether it has started")
            if not await self._repeat(status, process, "startup", container.startup, began):
                return
            self._note(container.name, "started")
        status.started = True
        status.first_started.set()
        status.ready = container.readiness is None
        self._note(container.name, "ready" if status.ready else "asked whether it is ready")
        async with asyncio.TaskGroup() as probes:
            for kind, probe in container.probes():
                if kind != "startup":
                    probes.create_task(self._repeat(status, process, kind, probe, began))

    async def _repeat(
        self, status: Status, process: Process, kind: str, probe: Probe, began: float
    ) -> bool:
        """Probe as long as it makes sense; return whether a startup probe has passed."""
        results: list[bool] = []
        due = max(time.monotonic(), began + probe.initial_delay_seconds)
        # whoever is not ready at once is asked again when the kubelet looks its containers over
        pauses = itertools.chain(
            [RELIST_SECONDS] if kind == "readiness" else [], itertools.repeat(probe.period_seconds)
        )
        while True:
            await asyncio.sleep(due - time.monotonic())
            verdict = await self._ask(probe.handler, process, probe.timeout_seconds)
            results.append(verdict.passed)
            passed, failed = thresholds(results, probe)
            if not verdict.passed:
                status.last_said = f"{kind}: {verdict.said}"
            if kind == "startup" and passed:
                return True
            if kind == "readiness" and (passed or failed):
                self._set_ready(status, ready=passed)
            if kind in ("startup", "liveness") and failed and not self._ending:
                self._note(status.container.name, f"{kind} probe failed")
                deadline = time.monotonic() + self.workload.grace_seconds
                # on its own: the container's end cancels this probe
                self._tasks.create_task(self._stop(status, deadline, ()))
                return False
            due += next(pauses)

    def _set_ready(self, status: Status, *, ready: bool) -> None:
        if ready != status.ready:
            status.ready = ready
            self._note(status.container.name, "ready" if ready else "not ready")

    async def _ask(self, handler: Handler, process: Process, seconds: float) -> Verdict:
        return await ask(handler, self.ip, process.run, timeout_seconds=seconds)

    async def probe(self, container: str, handler: Handler) -> Verdict:
        """Return what a container answers to a question of the kubelet now."""
        return await self._ask(handler, self.process(container), 10)

    async def _end(self, grace_seconds: float) -> None:
        """End all containers that run, or are being made just now."""
        deadline = time.monotonic() + grace_seconds
        statuses = self.statuses.values()
        await self.until(lambda: all(each.process or each.ended.is_set() for each in statuses))
        sidecars = [each for each in self.workload.init_containers if each.restartable]
        running = [each for each in statuses if each.process]
        for status in statuses:
            status.finished = status.finished or status.process is None
            status.given_up.set()
        async with asyncio.TaskGroup() as stops:
            for status in running:
                before = self._must_end_before(status, sidecars)
                stops.create_task(self._stop(status, deadline, before))

    def _must_end_before(
        self, status: Status, sidecars: Sequence[Container]
    ) -> tuple[asyncio.Event, ...]:
        """Return the ends that a native sidecar waits for: all containers', later sidecars'."""
        if status.container not in sidecars:
            return ()
        later = sidecars[sidecars.index(status.container) + 1 :]
        names = [each.name for each in (*later, *self.workload.containers)]
        return tuple(self.statuses[name].ended for name in names if self.statuses[name].process)

    async def _stop(self, status: Status, deadline: float, before: Sequence[asyncio.Event]) -> None:
        """Stop a container: hook, others' turn, SIGTERM, SIGKILL."""
        process, name = status.process, status.container.name
        if process is None:
            return
        if status.container.pre_stop:
            self._note(name, "pre-stop hook begun")
            remaining = max(deadline - time.monotonic(), 0)
            verdict = await self._ask(status.container.pre_stop, process, remaining)
            status.last_said = "" if verdict.passed else f"pre-stop: {verdict.said}"
            self._note(name, f"pre-stop hook {'done' if verdict.passed else 'failed'}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(_loop_time(deadline)):
                for each in before:
                    await each.wait()
        self._note(name, "SIGTERM")
        process.signal(signal.SIGTERM)
        remaining = max(deadline - time.monotonic(), MINIMUM_GRACE_SECONDS)
        try:
            async with asyncio.timeout(remaining):
                await status.ended.wait()
        except TimeoutError:
            self._note(name, "SIGKILL")
            process.signal(signal.SIGKILL)
            await status.ended.wait()


def _loop_time(monotonic: float) -> float:
    return asyncio.get_running_loop().time() + monotonic - time.monotonic()


@contextlib.asynccontextmanager
async def running(kubelet: Kubelet) -> AsyncIterator[Kubelet]:
    """Run a pod while the block does; whatever is left of it then is killed."""
    async with asyncio.TaskGroup() as group:
        life = group.create_task(kubelet.live())
        try:
            yield kubelet
        finally:
            life.cancel()
