"""What a kubelet does in which order, with containers that are only said to run."""

import asyncio
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from tests.pod.decisions import backoff_seconds, restarts, thresholds
from tests.pod.kubelet import Kubelet, StartError, running
from tests.pod.objects import Exec, Policy, Probe, Workload, parse_workload
from tests.waiting import until

Json = dict[str, Any]
#: Often enough for a test.
OFTEN = 0.01


class SaidProcess:
    """A container that ends when told to; its programs answer what its runtime says."""

    def __init__(self, runtime: "SaidRuntime", *, is_deaf: bool) -> None:
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._runtime = runtime
        self._is_deaf = is_deaf

    async def wait(self) -> int:
        return await asyncio.shield(self.code)

    def signal(self, number: signal.Signals) -> None:
        if number == signal.SIGKILL:
            self.end(137)
        elif not self._is_deaf:
            self.end(0)

    def end(self, code: int) -> None:
        if not self.code.done():
            self.code.set_result(code)

    async def run(self, argv: Sequence[str]) -> tuple[int, str]:
        self._runtime.said.append(argv[0])
        return next(self._runtime.answers.get(argv[0], iter(())), 0), argv[0]


class SaidRuntime:
    """Starts containers by saying so; `said` has what happened, in order."""

    def __init__(
        self,
        answers: Mapping[str, Iterable[int]] | None = None,
        *,
        deaf: Sequence[str] = (),
        refused: Sequence[str] = (),
    ) -> None:
        self.said: list[str] = []
        self.made: dict[str, SaidProcess] = {}
        #: Exit codes of programs, by name; 0 once there are no more.
        self.answers = {name: iter(codes) for name, codes in (answers or {}).items()}
        self.may_start = asyncio.Event()
        self.may_start.set()
        self._deaf = deaf
        self._refused = refused

    async def start(self, container: Any, attempt: int) -> SaidProcess:  # noqa: ANN401 - not needed
        if container.name in self._refused:
            raise StartError(f"{container.name}: no such program")
        await self.may_start.wait()
        self.said.append(f"{container.name} {attempt}")
        made = SaidProcess(self, is_deaf=container.name in self._deaf)
        self.made[container.name] = made
        return made


def run(*command: str) -> Json:
    return {"exec": {"command": list(command)}}


def named(name: str, **more: Any) -> Json:  # noqa: ANN401 - JSON
    return {"name": name, "image": "i", **more}


def sidecar(name: str, **more: Any) -> Json:  # noqa: ANN401 - JSON
    return named(name, restartPolicy="Always", **more)


def pod(*containers: Json, init: Sequence[Json] = (), policy: str = "Always") -> Workload:
    spec = {"containers": list(containers), "initContainers": list(init), "restartPolicy": policy}
    return parse_workload({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec})


def happened(kubelet: Kubelet, *whats: str) -> list[str]:
    """Return where which of these happened, in order."""
    return [f"{each.container} {each.what}" for each in kubelet.events if each.what in whats]


async def test_init_containers_come_one_after_another_and_first() -> None:
    runtime = SaidRuntime()
    workload = pod(named("app"), init=[named("one"), named("two")])
    async with running(Kubelet(workload, "", runtime)) as kubelet:
        await kubelet.until(lambda: "one" in runtime.made)
        runtime.made["one"].end(0)
        await kubelet.until(lambda: "two" in runtime.made)
        assert "app" not in runtime.made
        runtime.made["two"].end(0)

        await kubelet.ready()

    assert runtime.said == ["one 0", "two 0", "app 0"]


async def test_a_native_sidecar_has_started_before_the_next_container_begins() -> None:
    runtime = SaidRuntime({"probe": [1, 1]})
    probe = {**run("probe"), "periodSeconds": OFTEN}
    workload = pod(named("app"), init=[sidecar("proxy", startupProbe=probe), named("two")])
    async with running(Kubelet(workload, "", runtime)) as kubelet:
        await kubelet.until(lambda: "two" in runtime.made)
        runtime.made["two"].end(0)
        await kubelet.ready()

    assert runtime.said == ["proxy 0", "probe", "probe", "probe", "two 0", "app 0"]


async def test_a_hook_after_the_start_holds_the_next_container() -> None:
    runtime = SaidRuntime()
    workload = pod(named("proxy", lifecycle={"postStart": run("wait")}), named("app"))
    async with running(Kubelet(workload, "", runtime)) as kubelet:
        await kubelet.ready()

    assert runtime.said == ["proxy 0", "wait", "app 0"]


async def test_a_container_whose_hook_fails_is_ended_and_runs_again() -> None:
    runtime = SaidRuntime({"wait": [1]})
    workload = pod(named("proxy", lifecycle={"postStart": run("wait")}), named("app"))
    async with running(Kubelet(workload, "", runtime)) as kubelet:
        await kubelet.ready()

    assert runtime.said.count("wait") == 2
    assert kubelet.statuses["proxy"].codes == [0]
    assert kubelet.statuses["proxy"].restarts == 1


@pytest.mark.slow
async def test_a_pod_is_ready_while_all_of_its_containers_are() -> None:
    runtime = SaidRuntime({"probe": [1, 1, 0, 1, 1, 1, 0]})
    probe = {**run("probe"), "periodSeconds": OFTEN}
    workload = pod(named("app", readinessProbe=probe), init=[sidecar("proxy")])
    async with running(Kubelet(workload, "", runtime)) as kubelet:
        await kubelet.ready()
        await kubelet.until(lambda: not kubelet.is_ready)
        assert not kubelet.is_endpoint

        await kubelet.ready()

    turns = happened(kubelet, "ready", "not ready")
    assert turns == ["proxy ready", "app ready", "app not ready", "app ready"]


async def test_a_failing_liveness_probe_ends_a_container_and_it_runs_again() -> None:
    runtime = SaidRuntime({"alive": [1, 1]})
    probe = {**run("alive"), "periodSeconds": OFTEN, "failureThreshold": 2}
    async with running(Kubelet(pod(named("app", livenessProbe=probe)), "", runtime)) as kubelet:
        await kubelet.until(lambda: "app 1" in runtime.said)

    assert runtime.said[:4] == ["app 0", "alive", "alive", "app 1"]
    assert happened(kubelet, "liveness probe failed", "SIGTERM", "exit 0") == [
        "app liveness probe failed",
        "app SIGTERM",
        "app exit 0",
    ]


async def test_all_containers_end_at_once_and_sidecars_after_them_in_reverse() -> None:
    """Hooks of all run at once; only signals wait for their turn. Source: 9.8."""
    runtime = SaidRuntime()
    stop = {"preStop": run("stop")}
    workload = pod(
        named("app"),
        named("other"),
        init=[sidecar("proxy", lifecycle=stop), sidecar("logs")],
    )
    async with running(Kubelet(workload, "", runtime)) as kubelet:
        await kubelet.ready()
        kubelet.delete()
        assert not kubelet.is_endpoint
        await kubelet.over()

    ends = happened(kubelet, "pre-stop hook done", "SIGTERM")
    assert set(ends[:3]) == {"proxy pre-stop hook done", "app SIGTERM", "other SIGTERM"}
    assert ends[3:] == ["logs SIGTERM", "proxy SIGTERM"]
    assert kubelet.phase == "Succeeded"


@pytest.mark.slow
async def test_what_outlives_the_grace_period_is_killed() -> None:
    """And a sidecar whose turn never came gets a little time of its own."""
    runtime = SaidRuntime(deaf=["app"])
    workload = pod(named("app"), init=[sidecar("proxy")])
    async with running(Kubelet(workload, "", runtime)) as kubelet:
        await kubelet.ready()
        kubelet.delete(0.1)
        await kubelet.over()

    assert happened(kubelet, "SIGTERM", "SIGKILL") == [
        "app SIGTERM",
        "proxy SIGTERM",
        "app SIGKILL",
    ]
    assert (kubelet.phase, kubelet.statuses["app"].codes) == ("Failed", [137])


async def test_a_pod_whose_containers_are_done_ends_its_sidecars_and_has_succeeded() -> None:
    runtime = SaidRuntime()
    workload = pod(named("work"), init=[sidecar("proxy")], policy="OnFailure")
    async with running(Kubelet(workload, "", runtime)) as kubelet:
        await kubelet.ready()
        runtime.made["work"].end(0)
        await kubelet.over()

    assert happened(kubelet, "exit 0", "SIGTERM") == [
        "work exit 0",
        "proxy SIGTERM",
        "proxy exit 0",
    ]
    assert kubelet.phase == "Succeeded"


async def test_work_that_fails_is_done_again_if_its_policy_says_so() -> None:
    runtime = SaidRuntime()
    async with running(Kubelet(pod(named("work"), policy="OnFailure"), "", runtime)) as kubelet:
        await kubelet.ready()
        runtime.made["work"].end(3)
        await kubelet.until(lambda: "work 1" in runtime.said)
        runtime.made["work"].end(0)
        await kubelet.over()

    assert (kubelet.phase, kubelet.statuses["work"].codes) == ("Succeeded", [3, 0])


@pytest.mark.parametrize("failing", ["first", "work"])
async def test_a_pod_that_is_never_run_again_fails(failing: str) -> None:
    runtime = SaidRuntime()
    workload = pod(named("work"), init=[sidecar("proxy"), named("first")], policy="Never")
    async with running(Kubelet(workload, "", runtime)) as kubelet:
        await kubelet.until(lambda: "first" in runtime.made)
        runtime.made["first"].end(int(failing == "first"))
        if failing == "work":
            await kubelet.ready()
            runtime.made["work"].end(1)
        await kubelet.over()

    assert kubelet.phase == "Failed"
    assert ("work 0" in runtime.said) == (failing == "work")
    assert kubelet.statuses["proxy"].codes == [0]


async def test_a_pod_may_be_deleted_before_it_has_begun() -> None:
    runtime = SaidRuntime({"probe": [1] * 1000})
    probe = {**run("probe"), "periodSeconds": OFTEN, "failureThreshold": 1000}
    workload = pod(named("app"), init=[sidecar("proxy", startupProbe=probe)])
    async with running(Kubelet(workload, "", runtime)) as kubelet:
        await until(lambda: "probe" in runtime.said)
        kubelet.delete()
        await kubelet.over()

    assert "app 0" not in runtime.said
    assert kubelet.statuses["proxy"].codes == [0]


async def test_a_container_that_is_being_made_is_ended_too() -> None:
    runtime = SaidRuntime()
    runtime.may_start.clear()
    async with running(Kubelet(pod(named("app")), "", runtime)) as kubelet:
        await kubelet.until(lambda: happened(kubelet, "creating"))
        kubelet.delete()
        runtime.may_start.set()
        await kubelet.over()

    assert kubelet.statuses["app"].codes == [0]
    assert happened(kubelet, "SIGTERM") == ["app SIGTERM"]


async def test_a_container_that_cannot_be_started_says_why() -> None:
    runtime = SaidRuntime(refused=["app"])
    async with running(Kubelet(pod(named("app"), policy="Never"), "", runtime)) as kubelet:
        await kubelet.over()

    assert kubelet.statuses["app"].codes == [128]
    assert "app: no such program" in kubelet.describe()


async def test_what_never_happens_is_told_with_what_did() -> None:
    async with running(Kubelet(pod(named("app")), "", SaidRuntime())) as kubelet:
        await kubelet.ready()

        with pytest.raises(TimeoutError, match=r"(?s)not so after 0.01 s: p is Running.*ready"):
            await kubelet.until(lambda: False, 0.01)


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 1, False),
    ],
)
def test_the_policy_says_who_runs_again(policy: Policy, code: int, again: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert restarts(policy, code) == again


def test_each_restart_waits_longer_than_the_one_before() -> None:
    assert [backoff_seconds(ends) for ends in (1, 2, 3, 4, 20)] == [0, 10, 20, 40, 300]


@pytest.mark.parametrize(
    ("results", "verdict"),
    [
        ([True], (False, False)),
        ([True, True], (True, False)),
        ([True, True, False, False], (False, False)),
        ([False, False, False], (False, True)),
    ],
)
def test_results_in_a_row_make_a_verdict(results: list[bool], verdict: tuple[bool, bool]) -> None:
    probe = Probe(Exec(()), success_threshold=2, failure_threshold=3)

    assert thresholds(results, probe) == verdict
