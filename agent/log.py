"""Logging set-up: the reference's line formats, scopes and levels on Python's logging.

Source: bootstrap.md section 1.3.
"""

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import Final, TextIO

from agent.errors import SettingsError
from agent.scopes import LogSettings, level_of

PYTHON_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
    "none": logging.CRITICAL + 1,
}
LEVEL_NAMES: Final = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warn",
    logging.ERROR: "error",
    logging.CRITICAL: "fatal",
}
#: Which of the reference's scopes a logger of ours stands for; all others are "default".
SCOPES: Final[Mapping[str, str]] = {
    "agent.xds": "xdsproxy",
    "agent.dns": "dns",
    "agent.identity": "cache",
    "agent.wasm": "wasm",
    "agent.status.client": "probes",
    "agent.status.application": "healthcheck",
    "grpc": "grpc",
}


def set_up(settings: LogSettings) -> None:
    """Send log lines where the settings say, in their format, at each scope's level.

    Raises:
        SettingsError: a target cannot be opened.
    """
    formatter = JsonFormatter(settings) if settings.as_json else ConsoleFormatter(settings)
    logging.raiseExceptions = False  # a log that cannot be written is no reason for tracebacks
    root = logging.getLogger()
    root.handlers.clear()
    for target in settings.targets:
        handler = logging.StreamHandler(_open(target))
        handler.setFormatter(formatter)
        root.addHandler(handler)
    root.setLevel(PYTHON_LEVELS[level_of(settings.levels, "default")])
    for name, scope in SCOPES.items():
        logging.getLogger(name).setLevel(PYTHON_LEVELS[level_of(settings.levels, scope)])


def flush() -> None:
    """Write out what handlers still hold; called before the process leaves by the short way."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def _open(target: str) -> TextIO:
    if target in ("stdout", "stderr"):
        return sys.stdout if target == "stdout" else sys.stderr
    try:
        return open(target, "a", encoding="utf-8")  # noqa: PTH123 - open until the end
    except OSError as error:
        raise SettingsError([f"--log_target={target!r}: {error.strerror}"]) from error


def _scope(name: str) -> str:
    while name:
        if name in SCOPES:
            return SCOPES[name]
        name = name.rpartition(".")[0]
    return "default"


def _time(created: float) -> str:
    whole = int(created)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
    return f"{stamp}.{int((created - whole) * 1_000_000):06d}Z"


class ConsoleFormatter(logging.Formatter):
    """Tab-separated time, level, scope unless it is the default one, caller, message."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self._settings = settings

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and the traceback on following lines if there is one."""
        scope = _scope(record.name)
        parts = [_time(record.created), LEVEL_NAMES.get(record.levelno, "info")]
        if scope != "default":
            parts.append(scope)
        if {"all", scope} & self._settings.callers:
            parts.append(_caller(record))
        text = "\t".join((*parts, record.getMessage()))
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self._settings = settings

    def format(self, record: logging.LogRecord) -> str:
        """Return the object as compact JSON."""
        scope = _scope(record.name)
        entry = {
            "level": LEVEL_NAMES.get(record.levelno, "info"),
            "time": _time(record.created),
        }
        if scope != "default":
            entry["scope"] = scope
        if {"all", scope} & self._settings.callers:
            entry["caller"] = _caller(record)
        entry["msg"] = record.getMessage()
        if record.exc_info:
            entry["stack"] = self.formatException(record.exc_info)
        return json.dumps(entry, separators=(",", ":"), ensure_ascii=False)


def _caller(record: logging.LogRecord) -> str:
    return f"{'/'.join(record.pathname.rsplit('/', 2)[-2:])}:{record.lineno}"
