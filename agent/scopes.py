"""Which log line is written: scopes, levels and targets, from the global flags.

As in iptables/flags.py nothing is imported that the small commands would have to wait for.

Source: bootstrap.md section 1.3.
"""

from __future__ import annotations

TYPE_CHECKING = False  # stands for that of `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from iptables.flags import Parsed

LEVELS: Final = ("debug", "info", "warn", "error", "fatal", "none")
BUILT_IN: Final = "default:info,grpc:none"


class LogSettings:
    """What is logged, where and how."""

    __slots__ = ("as_json", "callers", "levels", "targets")

    def __init__(
        self,
        levels: Mapping[str, str],
        targets: tuple[str, ...] = ("stdout",),
        *,
        as_json: bool = False,
        callers: frozenset[str] = frozenset(),
    ) -> None:
        self.levels = levels
        self.targets = targets
        self.as_json = as_json
        self.callers = callers


def parse_log(flags: Parsed, errors: list[str]) -> LogSettings:
    """Return the logging branch; unusable values are added to the errors."""
    text = flags.text("log_output_level")
    return LogSettings(
        levels=parse_levels(",".join(filter(None, (BUILT_IN, text))), errors),
        targets=tuple(dict.fromkeys(flags.texts("log_target"))),
        as_json=flags.is_on("log_as_json"),
        callers=frozenset(filter(None, flags.text("log_caller").split(","))),
    )


def parse_levels(text: str, errors: list[str]) -> dict[str, str]:
    """Return the level of each scope named, applied from left to right; 'all' resets the rest."""
    levels: dict[str, str] = {}
    for item in text.split(","):
        scope, _, level = item.rpartition(":")
        if level not in LEVELS or ":" in scope:
            expected = f"expected scope:level, level one of {', '.join(LEVELS)}"
            errors.append(f"--log_output_level item {item!r}: {expected}")
        elif scope == "all":
            levels = {"all": level}
        else:
            levels[scope or "default"] = level
    return levels


def level_of(levels: Mapping[str, str], scope: str) -> str:
    """Return the level of a scope that may not be named itself."""
    for name in (scope, "all", "default"):
        if name in levels:
            return levels[name]
    return "info"
