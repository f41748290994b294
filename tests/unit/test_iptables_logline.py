"""Log lines, and which are written."""

import json
import time

import pytest

from iptables.logline import is_written, level_of, parse_levels, render

UTC = time.gmtime(1785549784)  # 2026-08-01T02:03:04Z
STAMP = "2026-08-01T02:03:04.000056Z"


def test_levels_apply_from_left_to_right() -> None:
    errors: list[str] = []

    levels = parse_levels("default:info,debug,xdsproxy:error,xdsproxy:warn", errors)

    assert levels == {"default": "debug", "xdsproxy": "warn"}
    assert errors == []


def test_the_scope_all_sets_every_scope() -> None:
    levels = parse_levels("xdsproxy:debug,all:error,dns:info", [])

    assert [level_of(levels, name) for name in ("xdsproxy", "default", "dns")] == [
        "error",
        "error",
        "info",
    ]


def test_a_scope_that_is_not_named_has_the_default_level() -> None:
    assert level_of({"default": "warn"}, "dns") == "warn"
    assert level_of({}, "dns") == "info"
    assert level_of({"dns": "debug"}) == "info"


@pytest.mark.parametrize("item", ["default:loud", "a:b:info", "loud", ":"])
def test_an_item_that_is_no_level_is_an_error(item: str) -> None:
    errors: list[str] = []

    parse_levels(f"info,{item}", errors)

    assert len(errors) == 1
    assert repr(item) in errors[0]


def test_nothing_names_no_level_but_an_empty_item_is_an_error() -> None:
    errors: list[str] = []

    assert parse_levels("", errors) == {}
    assert errors == []
    assert parse_levels("warn,", errors) == {"default": "warn"}
    assert len(errors) == 1


@pytest.mark.parametrize(
    ("level", "threshold", "expected"),
    [
        ("debug", "info", False),
        ("info", "info", True),
        ("error", "info", True),
        ("info", "error", False),
        ("fatal", "none", False),
        ("debug", "debug", True),
    ],
)
def test_a_line_below_the_threshold_is_not_written(
    level: str, threshold: str, *, expected: bool
) -> None:
    assert is_written(level, threshold) == expected


def test_a_line_for_people_is_parted_by_tabs() -> None:
    assert render(UTC, 56, "info", "Envoy is ready!") == f"{STAMP}\tinfo\tEnvoy is ready!"
    assert render(UTC, 56, "info", "") == f"{STAMP}\tinfo\t"
    full = render(UTC, 56, "error", "x", scope="dns", caller="dns/run.py:1", stack="Traceback\n  …")
    assert full == f"{STAMP}\terror\tdns\tdns/run.py:1\tx\nTraceback\n  …"


def test_the_default_scope_is_not_written() -> None:
    assert render(UTC, 56, "info", "x", scope="default") == render(UTC, 56, "info", "x")


def test_a_line_for_collectors_is_one_object() -> None:
    line = render(UTC, 56, "warn", 'a "b"\né', as_json=True)

    assert "\n" not in line
    assert json.loads(line) == {"level": "warn", "time": STAMP, "msg": 'a "b"\né'}


def test_a_line_for_collectors_has_a_key_for_all_that_is_known() -> None:
    line = render(
        UTC, 56, "error", "", scope="dns", caller="dns/run.py:1", stack="Traceback\n", as_json=True
    )

    assert list(json.loads(line).items()) == [
        ("level", "error"),
        ("time", STAMP),
        ("scope", "dns"),
        ("caller", "dns/run.py:1"),
        ("msg", ""),
        ("stack", "Traceback\n"),
    ]
