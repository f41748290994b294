from agent.backoff import backoff_seconds


def delays(spread: float) -> list[float]:
    def chance() -> float:
        return spread

    return [backoff_seconds(attempt, chance, first=1, longest=10) for attempt in range(1, 7)]


def test_delays_double_up_to_the_longest() -> None:
    assert delays(0) == [1, 2, 4, 8, 10, 10]


def test_chance_makes_delays_shorter_by_a_fifth_at_most() -> None:
    assert delays(1) == [0.8, 1.6, 3.2, 6.4, 8, 8]


def test_any_attempt_has_a_delay() -> None:
    assert backoff_seconds(10**6, lambda: 0, first=1, longest=30) == 30
