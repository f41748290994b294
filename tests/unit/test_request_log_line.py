import json

import pytest

from agent.request.log_line import is_written, render

UTC = "2026-08-01T02:03:04"


def test_a_line_for_people_is_separated_by_tabs() -> None:
    line = render(UTC, 56, "info", "Envoy is ready!", as_json=False)

    assert line == "2026-08-01T02:03:04.000056Z\tinfo\tEnvoy is ready!\n"


def test_a_line_for_collectors_is_one_object() -> None:
    line = render(UTC, 999999, "error", 'a "b"\né', as_json=True)

    assert line.count("\n") == 1
    assert json.loads(line) == {
        "level": "error",
        "time": "2026-08-01T02:03:04.999999Z",
        "msg": 'a "b"\né',
    }


@pytest.mark.parametrize(
    ("level", "threshold", "expected"),
    [
        ("debug", "info", False),
        ("info", "info", True),
        ("error", "info", True),
        ("info", "error", False),
        ("error", "none", False),
        ("debug", "debug", True),
    ],
)
def test_a_line_below_the_threshold_is_not_written(
    level: str, threshold: str, *, expected: bool
) -> None:
    assert is_written(level, threshold) == expected
