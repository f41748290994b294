"""Log lines, and which are written."""

import json

import pytest

from iptables.flags import UsageError
from iptables.logline import as_json, console, is_written, threshold

TIME = "2026-11-29T16:00:00.000001Z"


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("", "info"),
        ("debug", "debug"),
        ("default:warn", "warn"),
        ("all:error,ads:debug", "error"),
        ("default:debug,none", "none"),
        ("unknown:debug", "info"),
        ("warn,", "warn"),
    ],
)
def test_the_last_item_for_our_scope_decides(text: str, level: str) -> None:
    assert threshold(text) == level


@pytest.mark.parametrize("text", ["loud", "default:loud", "a:b:info", ":"])
def test_an_unknown_level_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected scope:level"):
        threshold(text)


def test_lines_below_the_threshold_are_not_written() -> None:
    assert is_written("warn", "info")
    assert is_written("info", "info")
    assert not is_written("debug", "info")
    assert not is_written("fatal", "none")


def test_a_console_line_is_parted_by_tabs() -> None:
    assert console(TIME, "info", "hello") == f"{TIME}\tinfo\thello\n"
    assert console(TIME, "info", "hello", "a/b.py:1") == f"{TIME}\tinfo\ta/b.py:1\thello\n"


def test_a_json_line_is_one_object() -> None:
    line = as_json(TIME, "warn", 'a "quote"\nand a break')

    assert line.count("\n") == 1
    assert json.loads(line) == {"level": "warn", "time": TIME, "msg": 'a "quote"\nand a break'}
    assert json.loads(as_json(TIME, "warn", "x", "a/b.py:1"))["caller"] == "a/b.py:1"
