"""The demo's steps, walked with a pod that only exists here."""

from collections.abc import Callable

import pytest

from agent.demo.addresses import CABLE, Family
from agent.demo.observe import Reply
from agent.demo.scenario import START_UP, Client, Step, termination, traffic

SLOW = "/slow?seconds=3"


class IdealPod:
    """Behaves as a pod must; `broken` makes one thing go wrong."""

    def __init__(self, broken: str = "") -> None:
        self.broken = broken
        self.counters = {15001: 0, 15006: 0}
        self.begun: dict[str, tuple[Client, str]] = {}
        self.terminating = False

    def capture(self) -> str:
        return "exit 0"

    def start(self) -> str:
        return "exit 0"

    def privileges(self) -> str:
        return "1337:1337, no capabilities"

    def serve(self) -> str:
        return "listening"

    def get(self, client: Client, target: str) -> Reply:
        status = 503 if self.terminating and target.endswith("/healthz/ready") else 200
        connection = "close" if self.terminating and self.broken != "drain" else ""
        return Reply(status, connection, f'{{"peer": "{self.peer(client, target)}"}}', "")

    def peer(self, client: Client, target: str) -> str:
        family: Family = "IPv6" if "[" in target else "IPv4"
        to_pod = CABLE.pod(family) in target
        if to_pod and ":15020/" in target:
            return "127.0.0.6"
        if client != "sidecar" or self.broken == "captured":
            self.counters[15006 if to_pod else 15001] += self.broken != "bypassed"
        if to_pod:
            return "127.0.0.6" if family == "IPv4" else "::6"
        return CABLE.pod(family)

    def get_until(self, client: Client, target: str, wanted: Callable[[Reply], bool]) -> Reply:
        tries = (self.get(client, target) for _ in range(3))
        return next((reply for reply in tries if wanted(reply)), self.get(client, target))

    def accepted(self, port: int) -> int:
        return self.counters[port]

    def begin(self, name: str, client: Client, target: str) -> None:
        self.begun[name] = (client, target)

    def finish(self, name: str) -> Reply:
        client, target = self.begun.pop(name)
        assert target.endswith(SLOW)
        return self.get(client, target) if self.broken != "lost" else Reply(0, "", "", "reset")

    def terminate(self) -> None:
        assert set(self.begun) == {"in", "out"}, "requests must be under way"
        self.terminating = True

    def ended(self) -> str:
        return "exit 0"


def steps() -> list[Step]:
    return [*START_UP, *traffic(("IPv4", "IPv6")), *termination()]


def differing(pod: IdealPod) -> list[str]:
    seen = [(step.name, step.expected, step.observe(pod)) for step in steps()]
    return [name for name, expected, found in seen if found != expected]


def test_an_ideal_pod_shows_what_is_expected() -> None:
    assert differing(IdealPod()) == []


@pytest.mark.parametrize(
    ("broken", "names"),
    [
        (
            "captured",
            [f"uid 1337 to node, not captured, {family}" for family in ("IPv4", "IPv6")],
        ),
        ("drain", ["a new request in"]),
        ("lost", ["the slow request in", "the slow request out"]),
        (
            "bypassed",
            [
                *("node to application, IPv4", "application to node, IPv4"),
                *("node to application, IPv6", "application to node, IPv6"),
            ],
        ),
    ],
)
def test_what_goes_wrong_is_seen(broken: str, names: list[str]) -> None:
    assert differing(IdealPod(broken)) == names


def test_names_of_steps_are_unique() -> None:
    names = [step.name for step in steps()]

    assert len(set(names)) == len(names)


def test_a_kernel_without_ipv6_is_not_asked_for_it() -> None:
    assert not [step.name for step in traffic(("IPv4",)) if "IPv6" in step.name]
