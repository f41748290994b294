"""How a pod ends, as one plan: decided at start, logged in one line, shown at /debug/drain.

    signal --delay--> drain --minimum--> is the condition met? --yes--> stop Envoy
      '--------------------------- deadline --------------------------> stop Envoy

The condition `duration` asks nothing more: its minimum is terminationDrainDuration, which is what
the reference does unless told otherwise. The others look at what still goes on. None is met before
the minimum, and the deadline, counted from the signal, beats everything. Jitter moves the end, so
that a fleet that is told at once does not hang up at once.

Source: bootstrap.md sections 6.5 and 6.6; cases.md D2 to D4, D8, D12 and D28.
"""

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, TypeVar

from agent.reader import Reader, parse_bool, parse_duration, parse_float

Condition = Literal["duration", "connections", "requests", "app"]
T = TypeVar("T")

CONDITIONS: Final[Mapping[str, Condition]] = {
    "duration": "duration",
    "connections": "connections",
    "requests": "requests",
    "app": "app",
}
DEFAULT: Final = "default"
TERMINATION: Final = "terminationDrainDuration"
EXIT_ON_ZERO: Final = "EXIT_ON_ZERO_ACTIVE_CONNECTIONS"
GRACE: Final = "AGENT_TERMINATION_GRACE_PERIOD"
#: Kubernetes tells no container how long its pod may take: who wants the end to come before the
#: kill has to say so.
DEFAULT_DEADLINE: Final = f"default, without {GRACE}"
#: Of both terminationDrainDuration and MINIMUM_DRAIN_DURATION.
DEFAULT_SECONDS: Final = 5.0
#: Nobody waits longer, not even where nothing sets a deadline: every wait has an end. A shorter
#: default would cut off who was given a long grace period, as in the reference nothing does.
LONGEST_SECONDS: Final = 86400.0
#: Of the grace period, for Envoy to stop and the agent after it; half of a very short one.
MARGIN_SECONDS: Final = 3.0


class Plan(NamedTuple):
    """When Envoy is drained and stopped once the agent is asked to end."""

    condition: Condition = "duration"
    #: From the signal to the drain. AGENT_DRAIN_DELAY.
    delay_seconds: float = 0.0
    #: From the drain until the condition may be met.
    minimum_seconds: float = DEFAULT_SECONDS
    #: From the signal until Envoy is stopped, whatever the condition.
    deadline_seconds: float = LONGEST_SECONDS
    #: The end may be moved by this share of the time up to it. AGENT_DRAIN_JITTER.
    jitter_ratio: float = 0.0
    #: Where each came from, by name: a variable, a field of ProxyConfig, `default`.
    sources: Mapping[str, str] = {}

    @property
    def drain_after_seconds(self) -> float:
        """From the signal to the drain."""
        return min(self.delay_seconds, self.deadline_seconds)

    @property
    def watch_after_seconds(self) -> float:
        """From the signal until the condition may be met."""
        return min(self.delay_seconds + self.minimum_seconds, self.deadline_seconds)


def parse_plan(read: Reader, *, termination_seconds: float) -> Plan:
    """Return the plan, its jitter not drawn; unusable values are noted on the reader.

    Args:
        read: the environment.
        termination_seconds: ProxyConfig terminationDrainDuration.
    """
    asked = _Asked(read)
    condition: Condition = asked.take("AGENT_EXIT_ON", "condition", parse_condition, "duration")
    if read.take(EXIT_ON_ZERO, parse_bool, default=False) and asked.is_default("condition"):
        condition = "connections"
        asked.sources["condition"] = EXIT_ON_ZERO
    delay = asked.take("AGENT_DRAIN_DELAY", "delay", parse_wait, 0.0)
    minimum = asked.take("MINIMUM_DRAIN_DURATION", "minimum", parse_wait, DEFAULT_SECONDS)
    if condition == "duration":
        minimum = termination_seconds
        by_default = minimum == DEFAULT_SECONDS
        asked.sources["minimum"] = DEFAULT if by_default else TERMINATION
    plan = Plan(
        condition=condition,
        delay_seconds=delay,
        minimum_seconds=minimum,
        deadline_seconds=_deadline(asked, condition, delay, termination_seconds),
        jitter_ratio=asked.take("AGENT_DRAIN_JITTER", "jitter", parse_ratio, 0.0),
        sources=asked.sources,
    )
    if delay + minimum > plan.deadline_seconds:
        read.warnings.append(
            f"the deadline of {plan.deadline_seconds:g}s ({plan.sources['deadline']}) leaves no"
            f" time for a drain of at least {minimum:g}s ({plan.sources['minimum']})"
            f" after {delay:g}s ({plan.sources['delay']}); the deadline wins"
        )
    return plan


def _deadline(
    asked: "_Asked", condition: Condition, delay: float, termination_seconds: float
) -> float:
    """Return the deadline that was asked for, and no later than the grace period allows.

    Where the condition leaves terminationDrainDuration without a meaning, it is the longest that
    the drain may take (D3).
    """
    deadline = asked.take("AGENT_DRAIN_DEADLINE", "deadline", parse_wait, LONGEST_SECONDS)
    bounds = condition != "duration" and termination_seconds != DEFAULT_SECONDS
    if bounds and asked.is_default("deadline"):
        deadline = delay + termination_seconds
        asked.sources["deadline"] = TERMINATION
    if asked.is_default("deadline"):
        asked.sources["deadline"] = DEFAULT_DEADLINE
    grace = asked.read.take(GRACE, parse_grace, default=float("inf"))
    latest = grace - min(MARGIN_SECONDS, grace / 2)
    if latest < deadline:
        deadline = latest
        asked.sources["deadline"] = GRACE
    return deadline


class _Asked:
    """Takes values from a reader, and remembers which of them were given."""

    def __init__(self, read: Reader) -> None:
        self.read = read
        self.sources: dict[str, str] = {}

    def take(self, name: str, field: str, parse: Callable[[str], T], default: T) -> T:
        def parse_given(text: str) -> T:
            value = parse(text)
            self.sources[field] = name
            return value

        self.sources[field] = DEFAULT
        return self.read.take(name, parse_given, default=default)

    def is_default(self, field: str) -> bool:
        return self.sources[field] == DEFAULT


def parse_condition(text: str) -> Condition:
    """Return what ends a drain."""
    if text not in CONDITIONS:
        raise ValueError(f"expected one of {', '.join(CONDITIONS)}")
    return CONDITIONS[text]


def parse_wait(text: str) -> float:
    """Return the seconds of a duration that is not below zero."""
    seconds = parse_duration(text)
    if not 0 <= seconds <= LONGEST_SECONDS:
        raise ValueError("expected a duration from 0s to 24h")
    return seconds


def parse_grace(text: str) -> float:
    """Return seconds, from a duration or from a whole number as a pod's specification has it."""
    return parse_wait(f"{text}s" if text.isdecimal() else text)


def parse_ratio(text: str) -> float:
    """Return a share below the whole, from '25%' or '0.25'."""
    ratio = parse_float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= ratio < 1:
        raise ValueError("expected a share from 0% up to 100%, such as '25%' or '0.25'")
    return ratio


def draw(plan: Plan, rng: Callable[[], float]) -> Plan:
    """Return the plan with its end moved at random, within the minimum and the deadline.

    The end is that of the fixed duration, else the deadline. Ends are spread evenly from 1 - ratio
    to 1 + ratio of it; where the deadline is nearer than that, the whole spread comes before it.
    """
    if plan.condition == "duration":
        longest = plan.deadline_seconds - plan.drain_after_seconds
        return plan._replace(
            minimum_seconds=_spread(plan.minimum_seconds, longest, plan.jitter_ratio, rng)
        )
    deadline = _spread(plan.deadline_seconds, plan.deadline_seconds, plan.jitter_ratio, rng)
    return plan._replace(deadline_seconds=max(deadline, plan.watch_after_seconds))


def _spread(seconds: float, longest: float, ratio: float, rng: Callable[[], float]) -> float:
    latest = min(seconds * (1 + ratio), longest)
    return latest * (1 - rng() * 2 * ratio / (1 + ratio))


def describe(plan: Plan) -> str:
    """Return the plan in one line, each value with where it came from."""
    shown = (
        ("condition", plan.condition),
        ("delay", f"{plan.delay_seconds:g}s"),
        ("minimum", f"{plan.minimum_seconds:g}s"),
        ("deadline", f"{plan.deadline_seconds:g}s"),
        ("jitter", f"{plan.jitter_ratio:.0%}"),
    )
    return " ".join(f"{name}={value} ({plan.sources.get(name, DEFAULT)})" for name, value in shown)


def plan_document(plan: Plan) -> dict[str, object]:
    """Return the plan for /debug/drain: {field: {"value", "from"}}."""
    fields = {
        "condition": plan.condition,
        "delay_seconds": plan.delay_seconds,
        "minimum_seconds": plan.minimum_seconds,
        "deadline_seconds": plan.deadline_seconds,
        "jitter_ratio": plan.jitter_ratio,
    }
    return {
        name: {"value": value, "from": plan.sources.get(name.partition("_")[0], DEFAULT)}
        for name, value in fields.items()
    }
