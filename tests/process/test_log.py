"""Logging writes to real files: a handler is what is tested."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent import log
from agent.errors import SettingsError
from agent.scopes import LogSettings


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    for handler in root.handlers:
        if handler not in handlers:
            assert isinstance(handler, logging.StreamHandler)
            handler.stream.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in log.SCOPES:
        logging.getLogger(name).setLevel(logging.NOTSET)


def written(path: Path) -> list[str]:
    log.flush()
    return path.read_text().splitlines()


def settings(path: Path, *, as_json: bool = False, **levels: str) -> LogSettings:
    return LogSettings(
        levels={"default": "info", **levels},
        targets=(str(path),),
        as_json=as_json,
        callers=frozenset(("xdsproxy",)),
    )


def test_a_line_is_time_level_message_between_tabs(tmp_path: Path) -> None:
    log.set_up(settings(tmp_path / "log"))

    logging.getLogger("agent.lifecycle.run").warning("drained after=%d", 3)

    (line,) = written(tmp_path / "log")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\twarn\tdrained after=3", line)


def test_a_scope_other_than_the_default_is_named_and_has_its_own_level(tmp_path: Path) -> None:
    log.set_up(settings(tmp_path / "log", xdsproxy="debug"))

    logging.getLogger("agent.xds.client").debug("> request")
    logging.getLogger("agent.run").debug("not written")

    (line,) = written(tmp_path / "log")
    _, level, scope, caller, message = line.split("\t")
    assert (level, scope, message) == ("debug", "xdsproxy", "> request")
    assert re.fullmatch(r"process/test_log\.py:\d+", caller)


def test_json_lines_hold_the_same(tmp_path: Path) -> None:
    log.set_up(settings(tmp_path / "log", as_json=True))

    logging.getLogger("agent.xds.run").error('a "quoted" word')

    (line,) = written(tmp_path / "log")
    entry = json.loads(line)
    assert (entry["level"], entry["scope"]) == ("error", "xdsproxy")
    assert entry["msg"] == 'a "quoted" word'
    assert set(entry) == {"level", "time", "scope", "caller", "msg"}


@pytest.mark.parametrize("as_json", [False, True])
def test_a_traceback_follows_its_line(tmp_path: Path, *, as_json: bool) -> None:
    log.set_up(settings(tmp_path / "log", as_json=as_json))

    try:
        int("broken")
    except ValueError:
        logging.getLogger("agent.run").exception("failed")

    assert "ValueError: invalid literal" in "".join(written(tmp_path / "log"))


def test_a_target_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"--log_target='.*/none/log'"):
        log.set_up(settings(tmp_path / "none" / "log"))


def test_a_pipe_is_a_target_once_somebody_reads_it(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(SettingsError, match="No such device or address"):
        log.set_up(settings(pipe))
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    log.set_up(settings(pipe))
    logging.getLogger("agent.run").info("hello")

    assert os.read(reader, 1000).endswith(b"hello\n")
    os.close(reader)


class Clock:
    """Calls what was put off when it is told to."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def later(self, seconds: float, function: Callable[[], object]) -> "Call":
        self.calls.append(Call(seconds, function))
        return self.calls[-1]


class Call:
    def __init__(self, seconds: float, function: Callable[[], object]) -> None:
        self.seconds = seconds
        self.function = function
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


def levels_of(document: dict[str, object], *scopes: str) -> list[str]:
    levels = document["levels"]
    assert isinstance(levels, dict)
    return [levels[scope] for scope in scopes]


FULL = """
import logging, os
from agent import log
from agent.scopes import LogSettings
log.set_up(LogSettings({}))
logging.warning("this goes nowhere")
log.flush()
os._exit(7)
"""


def test_a_log_that_cannot_be_written_ends_nothing() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", FULL],
            check=False, stdout=full, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2],
        )  # fmt: skip

    assert (done.returncode, done.stderr) == (7, b"")


def test_levels_change_for_a_while(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "log", grpc="none")
    log.set_up(chosen)
    clock = Clock()
    levels = log.Levels(chosen, clock.later)
    before = levels.document()

    levels.change("xdsproxy:debug", 60)
    logging.getLogger("agent.xds.run").debug("seen")
    logging.getLogger("agent.run").debug("not seen")
    during = levels.document()
    clock.calls[0].function()
    logging.getLogger("agent.xds.run").debug("not seen any more")

    assert [line.split("\t")[-1] for line in written(tmp_path / "log")] == [
        "log levels changed levels=xdsproxy:debug for_seconds=60",
        "seen",
        "log levels are those of the settings again",
    ]
    assert levels_of(before, "xdsproxy", "dns", "grpc") == ["info", "info", "none"]
    assert levels_of(during, "xdsproxy", "dns", "grpc") == ["debug", "info", "none"]
    assert (before["until"], levels.document()) == (None, before)
    assert during["settled"] == before["levels"]
    assert isinstance(during["until"], float)


def test_a_later_change_takes_the_place_of_the_first(tmp_path: Path) -> None:
    chosen = settings(tmp_path / "log")
    log.set_up(chosen)
    clock = Clock()
    levels = log.Levels(chosen, clock.later)

    levels.change("xdsproxy:debug", 60)
    levels.change("dns:debug", 0)

    assert [call.is_cancelled for call in clock.calls] == [True, False]
    assert levels_of(levels.document(), "xdsproxy", "dns") == ["info", "debug"]


@pytest.mark.parametrize("text", ["loud", "", "a:b:debug"])
def test_what_is_no_level_changes_nothing(tmp_path: Path, text: str) -> None:
    chosen = settings(tmp_path / "log")
    log.set_up(chosen)
    levels = log.Levels(chosen, Clock().later)

    with pytest.raises(ValueError, match=f"^level {text!r}: expected scope:level"):
        levels.change(text, 60)

    assert levels.document()["until"] is None
    assert logging.getLogger().level == logging.INFO


@pytest.mark.parametrize("text", ["typo:debug", "dns:debug,typo:debug", "typo:debug,all:info"])
def test_an_unknown_scope_is_refused_with_the_known_ones(tmp_path: Path, text: str) -> None:
    chosen = settings(tmp_path / "log", old="debug")  # of the flag, which takes any
    log.set_up(chosen)
    levels = log.Levels(chosen, Clock().later)
    known = "all, cache, default, dns, grpc, healthcheck, probes, wasm, xdsproxy"

    with pytest.raises(ValueError, match=f"^scope 'typo': expected {known}$"):
        levels.change(text, 60)

    assert levels.document()["until"] is None
    levels.change(",".join(f"{scope}:warn" for scope in known.split(", ")), 60)
    assert levels_of(levels.document(), "dns", "old") == ["warn", "warn"]
