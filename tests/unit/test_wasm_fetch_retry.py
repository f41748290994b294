"""When a request is sent again. Sections 3.5 and 3.6."""

import pytest

from agent.wasm.fetch.retry import http_pause, is_http_retried, registry_pause


@pytest.mark.parametrize(
    ("status", "expected"),
    [(200, False), (404, False), (429, False), (500, True), (501, False), (503, True),
     (505, False), (511, False), (599, True), (600, False)],
)  # fmt: skip
def test_servers_that_have_failed_are_asked_again(status: int, *, expected: bool) -> None:
    assert is_http_retried(status) is expected


def test_pauses_grow_by_half_up_to_a_minute() -> None:
    assert [http_pause(n, lambda: 0.5) for n in (1, 2, 3)] == [0.5, 0.75, 1.125]
    assert http_pause(1, lambda: 0.0) == 0.25
    assert http_pause(100, lambda: 0.5) == 60.0


def test_a_registry_gets_a_second_and_then_three() -> None:
    assert [registry_pause(n, lambda: 0.5) for n in (1, 2)] == [1.0, 3.0]
    assert registry_pause(1, lambda: 0.0) == pytest.approx(0.9)
