"""Health reports against the words of the specification. Source: section 9.3."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agent.status.application.settings import Thresholds
from agent.status.application.state import State, next_due, observe

COUNTS = st.integers(min_value=1, max_value=5)


class Model:
    """Two counters, as the specification tells it."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._successes = 0
        self._failures = 0
        self._reported = "nothing"

    def check(self, *, is_healthy: bool) -> str | None:
        if is_healthy:
            self._successes, self._failures = self._successes + 1, 0
            if self._successes >= self._thresholds.success and self._reported != "healthy":
                self._reported = "healthy"
                return self._reported
        else:
            self._successes, self._failures = 0, self._failures + 1
            if self._failures >= self._thresholds.failure and self._reported != "unhealthy":
                self._reported = "unhealthy"
                return self._reported
        return None


@given(st.lists(st.booleans(), max_size=60), st.builds(Thresholds, COUNTS, COUNTS))
def test_reports_are_those_of_two_counters(results: Sequence[bool], thresholds: Thresholds) -> None:
    model, state = Model(thresholds), State()
    for is_healthy in results:
        expected = model.check(is_healthy=is_healthy)

        state, is_news = observe(state, is_healthy=is_healthy, thresholds=thresholds)

        assert is_news is (expected is not None)
        if is_news:
            assert expected == ("healthy" if is_healthy else "unhealthy")


@given(st.lists(st.booleans(), max_size=60), st.builds(Thresholds, COUNTS, COUNTS))
def test_reports_alternate(results: Sequence[bool], thresholds: Thresholds) -> None:
    state, reported = State(), []
    for is_healthy in results:
        state, is_news = observe(state, is_healthy=is_healthy, thresholds=thresholds)
        reported += [is_healthy] if is_news else []

    assert all(before is not after for before, after in pairwise(reported))


@given(
    st.integers(min_value=1, max_value=3600),
    st.lists(st.floats(min_value=0, max_value=100), max_size=50),
)
def test_checks_do_not_drift(period: int, delays: Sequence[float]) -> None:
    """However long checks take, they begin at whole periods after the first, each once."""
    due = 1000.0
    for delay in delays:
        now = due + delay

        after = next_due(due, period, now)

        assert after > now
        assert after - now <= period
        assert (after - 1000.0) % period == 0
        due = after
