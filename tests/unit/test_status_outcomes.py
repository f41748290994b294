import pytest

from agent.status.outcomes import Outcome, failure_reason, outcome_after


def test_outcomes_in_a_row_are_counted_from_the_first() -> None:
    first = outcome_after(None, 200, "", at=10.0, seconds=0.1)
    second = outcome_after(first, 204, "", at=20.0, seconds=0.2)

    assert first == Outcome(200, "", 10.0, 0.1, since=10.0, times=1)
    assert second == Outcome(204, "", 20.0, 0.2, since=10.0, times=2)


def test_a_row_ends_when_the_kubelet_changes_its_mind() -> None:
    success = outcome_after(None, 200, "", at=10.0, seconds=0.1)
    failure = outcome_after(success, 503, "overload", at=20.0, seconds=0.1)
    again = outcome_after(failure, 500, "refused", at=30.0, seconds=0.1)

    assert (failure.since, failure.times) == (20.0, 1)
    assert (again.since, again.times, again.reason) == (20.0, 2, "refused")


@pytest.mark.parametrize(
    ("status", "expected"), [(199, False), (200, True), (399, True), (400, False), (500, False)]
)
def test_the_kubelet_takes_200_to_399_for_a_success(status: int, expected: bool) -> None:  # noqa: FBT001 - a parameter of pytest's
    assert outcome_after(None, status, "", at=0.0, seconds=0.0).is_success is expected


@pytest.mark.parametrize(
    ("status", "reason", "body", "expected"),
    [
        (500, "connection refused", b"", "connection refused"),
        (503, "", b"\n  no database \r\nat all\n", "no database"),
        (503, "", b"x" * 1000, "x" * 200),
        (503, "", b"\xff", "\ufffd"),
        (503, "", b"", ""),
        (200, "", b"fine", ""),
    ],
)
def test_a_reason_is_ours_or_the_first_line_of_the_answer(
    status: int, reason: str, body: bytes, expected: str
) -> None:
    assert failure_reason(status, reason, body) == expected
