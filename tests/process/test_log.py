"""Logging writes to real files: a handler is what is tested."""

import json
import logging
import re
from collections.abc import Iterator
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
