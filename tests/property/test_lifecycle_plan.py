"""Whatever the environment says, a pod's end is bounded; whatever Envoy prints can be counted."""

from hypothesis import given
from hypothesis import strategies as st

from agent.lifecycle.drain import count_connections, count_requests
from agent.lifecycle.plan import CONDITIONS, LONGEST_SECONDS, describe, draw, parse_plan
from agent.reader import Reader

DURATIONS = st.one_of(
    st.integers(0, 100).map("{}s".format),
    st.integers(0, 5000).map("{}ms".format),
    st.sampled_from(("", "-1s", "5", "1h", "25h", "1m30s")),
)
ENVIRONMENTS = st.fixed_dictionaries(
    {},
    optional={
        "AGENT_EXIT_ON": st.sampled_from((*CONDITIONS, "never")),
        "EXIT_ON_ZERO_ACTIVE_CONNECTIONS": st.sampled_from(("true", "false", "yes")),
        "AGENT_DRAIN_DELAY": DURATIONS,
        "MINIMUM_DRAIN_DURATION": DURATIONS,
        "AGENT_DRAIN_DEADLINE": DURATIONS,
        "AGENT_TERMINATION_GRACE_PERIOD": DURATIONS,
        "AGENT_DRAIN_JITTER": st.sampled_from(("0%", "25%", "0.99", "100%", "?")),
    },
)
#: Names as Envoy makes them, and what is none.
NAMES = st.sampled_from(
    (
        "listener.0.0.0.0_15006.downstream_cx_active",
        "listener.[__]_15021.downstream_cx_active",
        "http.inbound_[::]_80;.downstream_rq_active",
        "http.admin.downstream_rq_active",
        "",
        ":",
    )
)
LINES = st.one_of(
    st.tuples(NAMES, st.integers(0, 99)).map(lambda it: f"{it[0]}: {it[1]}"), st.text()
)


@given(ENVIRONMENTS, st.floats(0, 100), st.floats(0, 1, exclude_max=True))
def test_every_plan_ends_by_its_deadline_and_not_before_its_minimum(
    environ: dict[str, str], termination_seconds: float, chance: float
) -> None:
    given_plan = parse_plan(Reader(environ), termination_seconds=termination_seconds)

    plan = draw(given_plan, lambda: chance)

    assert 0 <= plan.drain_after_seconds <= plan.watch_after_seconds <= plan.deadline_seconds
    assert plan.deadline_seconds <= given_plan.deadline_seconds <= LONGEST_SECONDS
    if plan.condition != "duration":
        assert plan.watch_after_seconds == given_plan.watch_after_seconds
    assert set(plan.sources) == {"condition", "delay", "minimum", "deadline", "jitter"}
    assert describe(plan).count(" (") == len(plan.sources)


@given(st.lists(LINES))
def test_anything_can_be_counted(lines: list[str]) -> None:
    stats = "\n".join(lines)
    odd: list[str] = []

    connections = count_connections(stats, (15021,), odd.append)
    requests = count_requests(stats, (15021,), odd.append)

    assert (connections is None) == (requests is None) == (not stats.strip())
    if connections and requests:
        assert requests.active >= 0
        assert requests.begun >= connections.begun
