"""Logging set-up: the reference's line formats, scopes and levels on Python's logging.

Source: bootstrap.md section 1.3.
"""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol, TextIO

from agent.errors import SettingsError
from agent.scopes import LogSettings
from iptables.log import open_target
from iptables.logline import DEFAULT_SCOPE, level_of, parse_levels, render

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
log = logging.getLogger(__name__)


class Cancellable(Protocol):
    """A call to come."""

    def cancel(self) -> object:
        """Have it not come."""


Later = Callable[[float, Callable[[], object]], Cancellable]
#: Which of the reference's scopes a logger of ours stands for; all others are the default one.
SCOPES: Final[Mapping[str, str]] = {
    "agent.xds": "xdsproxy",
    "agent.dns": "dns",
    "agent.identity": "cache",
    "agent.wasm": "wasm",
    "agent.status.client": "probes",
    "agent.status.application": "healthcheck",
    "grpc": "grpc",
}
#: What a change of levels can name: other scopes of the reference write nothing here.
KNOWN_SCOPES: Final = frozenset(("all", DEFAULT_SCOPE, *SCOPES.values()))


def set_up(settings: LogSettings) -> None:
    """Send log lines where the settings say, in their format, at each scope's level.

    Raises:
        SettingsError: a target cannot be opened.
    """
    logging.raiseExceptions = False  # a log that cannot be written is no reason for tracebacks
    root = logging.getLogger()
    root.handlers.clear()
    for target in settings.targets:
        handler = logging.StreamHandler(_open(target))
        handler.setFormatter(Formatter(settings))
        root.addHandler(handler)
    apply(settings.levels)


def apply(levels: Mapping[str, str]) -> None:
    """Have each scope log from its level on."""
    logging.getLogger().setLevel(PYTHON_LEVELS[level_of(levels)])
    for name, scope in SCOPES.items():
        logging.getLogger(name).setLevel(PYTHON_LEVELS[level_of(levels, scope)])


class Levels:
    """The levels in force: those of the settings or, for a while, others."""

    def __init__(self, settings: LogSettings, later: Later) -> None:
        """Take what was set up; `later` calls a function after some seconds."""
        self._settled = settings.levels
        self._levels = settings.levels
        self._later = later
        self._reset: Cancellable | None = None
        self._until: float | None = None  #: Unix seconds

    def document(self) -> dict[str, object]:
        """Return the level of each scope, what it is otherwise, and until when, as JSON has it."""
        scopes = sorted({DEFAULT_SCOPE, *SCOPES.values(), *self._settled, *self._levels} - {"all"})
        return {
            "levels": {scope: level_of(self._levels, scope) for scope in scopes},
            "settled": {scope: level_of(self._settled, scope) for scope in scopes},
            "until": self._until,
        }

    def change(self, text: str, seconds: float) -> None:
        """Have other levels for a while, on top of the settings'.

        Args:
            text: as --log_output_level has it: debug, or xdsproxy:debug,dns:info.
            seconds: until the settings' are back; zero for at once.

        Raises:
            ValueError: one line for what is wrong with the text, an unknown scope included: the
                flag lets those pass for old installs, but here someone waits for the lines.
        """
        errors: list[str] = []
        settled = (f"{scope}:{level}" for scope, level in self._settled.items())
        levels = parse_levels(",".join((*settled, text)), errors)
        if errors:
            raise ValueError("; ".join(errors).replace("--log_output_level item ", "level "))
        named = (item.rpartition(":")[0] for item in text.split(","))
        if unknown := sorted({*filter(None, named)} - KNOWN_SCOPES):
            raise ValueError(f"scope {unknown[0]!r}: expected {', '.join(sorted(KNOWN_SCOPES))}")
        if self._reset:
            self._reset.cancel()
        self._levels, self._until = levels, round(time.time() + seconds, 3)
        apply(levels)
        self._reset = self._later(seconds, self._settle)
        log.info("log levels changed levels=%s for_seconds=%g", text, seconds)

    def _settle(self) -> None:
        self._levels, self._until, self._reset = self._settled, None, None
        apply(self._settled)
        log.info("log levels are those of the settings again")


def flush() -> None:
    """Write out what handlers still hold; called before the process leaves by the short way."""
    for handler in logging.getLogger().handlers:
        with suppress(OSError):  # full, or nobody reads it: no reason to end otherwise
            handler.flush()


def _open(target: str) -> TextIO:
    try:
        return open_target(target)
    except OSError as error:
        raise SettingsError([f"--log_target={target!r}: {error.strerror}"]) from error


def _scope(name: str) -> str:
    while name:
        if name in SCOPES:
            return SCOPES[name]
        name = name.rpartition(".")[0]
    return DEFAULT_SCOPE


class Formatter(logging.Formatter):
    """Makes lines as iptables/logline.py has them."""

    def __init__(self, settings: LogSettings) -> None:
        super().__init__()
        self._settings = settings

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, with its traceback if there is one."""
        seconds = int(record.created)
        scope = _scope(record.name)
        has_caller = {"all", scope} & self._settings.callers
        return render(
            time.gmtime(seconds),
            int((record.created - seconds) * 1_000_000),
            LEVEL_NAMES.get(record.levelno, "info"),
            record.getMessage(),
            scope=scope,
            caller=_caller(record) if has_caller else "",
            stack=self.formatException(record.exc_info) if record.exc_info else "",
            as_json=self._settings.as_json,
        )


def _caller(record: logging.LogRecord) -> str:
    return f"{'/'.join(record.pathname.rsplit('/', 2)[-2:])}:{record.lineno}"
