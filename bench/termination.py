"""What a pod's end costs: requests lost, and the time from the condition until the agent is gone.

Method: a captured pod in throw-away namespaces, a real Envoy, an application, and 200 requests a
second through the sidecar: HTTP/1.1 on new and on kept connections, HTTP/2 streams, messages on an
upgraded connection, and new outbound connections (tests/envoy/loaded_pod.py). The pod is told to
end under this load, which goes on for 150 more answers; then the last connection, request or
application goes, and the time from there until the agent's process is gone is the overhead. Each
way to end is taken RUNS times (argument, 5). Goals: no request lost, 100 ms.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from agent.demo import files
from tests.envoy.loaded_pod import LoadedPod, loaded_pod
from tests.waiting import block_until

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
MINIMUM = {"MINIMUM_DRAIN_DURATION": "500ms"}
FIXED_SECONDS = 2.0
#: So long nothing may have begun before what is open can be the last.
QUIET_SECONDS = 1.1


def under_load(pod: LoadedPod, signal: Callable[[], float]) -> float:
    pod.inbound.tell("more 60")
    at = signal()
    block_until(lambda: "draining target=" in pod.made.log_text())
    pod.inbound.tell("more 150")
    pod.outbound.tell("quiet")
    pod.inbound.tell("quiet")
    return at


def fixed(pod: LoadedPod) -> float:
    at = under_load(pod, pod.terminate)
    pod.inbound.tell("hang-up")
    return at + FIXED_SECONDS


def last(command: str) -> Callable[[LoadedPod], float]:
    def end(pod: LoadedPod) -> float:
        under_load(pod, pod.terminate)
        time.sleep(QUIET_SECONDS)
        return pod.inbound.tell(command)

    return end


def application(pod: LoadedPod) -> float:
    under_load(pod, lambda: pod.terminate(application=True))
    hung_up = pod.inbound.tell("hang-up")
    gone = [float(pod.application.hear().split()[1]) for _ in ("closed", "ended")]
    return max(hung_up, *gone)


def native(pod: LoadedPod) -> float:
    under_load(pod, lambda: post(pod, "drain"))
    pod.inbound.tell("hang-up")
    return pod.terminate(application=True)


def quit_at_once(pod: LoadedPod) -> float:
    pod.inbound.tell("quiet")
    pod.outbound.tell("quiet")
    pod.inbound.tell("leave")
    return post(pod, "quitquitquit")


def second_signal(pod: LoadedPod) -> float:
    under_load(pod, pod.terminate)
    pod.inbound.tell("leave")
    return pod.terminate()


def post(pod: LoadedPod, path: str) -> float:
    argv = [*files.program(), "request", "--debug-port=15020", "POST", path]
    pod.made.inside.spawn(argv, environ=pod.made.environ, stdout=subprocess.DEVNULL).wait()
    return time.monotonic()


WAYS: dict[str, tuple[Callable[[], AbstractContextManager[LoadedPod]], Callable[..., float]]] = {
    "fixed time": (
        lambda: loaded_pod({}, {"terminationDrainDuration": f"{FIXED_SECONDS:g}s"}),
        fixed,
    ),
    "no connection": (
        lambda: loaded_pod({**MINIMUM, "EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true"}),
        last("leave"),
    ),
    "no request": (
        lambda: loaded_pod({**MINIMUM, "AGENT_EXIT_ON": "requests"}),
        last("hang-up"),
    ),
    "application gone": (
        lambda: loaded_pod({**MINIMUM, "AGENT_EXIT_ON": "app"}, application_seconds=1.5),
        application,
    ),
    "drained, then signal": (lambda: loaded_pod({}), native),
    "/quitquitquit": (lambda: loaded_pod({}), quit_at_once),
    "second signal": (
        lambda: loaded_pod({}, {"terminationDrainDuration": "60s"}),
        second_signal,
    ),
}


def main() -> None:
    print(f"from the condition until the agent is gone, {RUNS} runs each")
    for name, (make, end) in WAYS.items():
        milliseconds, answered, lost = [], 0, []
        for _ in range(RUNS):
            with make() as pod:
                condition = end(pod)
                milliseconds.append((pod.ended_at() - condition) * 1000)
                for said in pod.reports().values():
                    answered += said["ok"]
                    lost += said["failed"]
        print(
            f"{name:22} median {statistics.median(milliseconds):5.0f} ms   max"
            f" {max(milliseconds):5.0f} ms   answered {answered}, lost {len(lost)} {lost[:3] or ''}"
        )


if __name__ == "__main__":
    main()
