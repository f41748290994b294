"""Which log line is written: scopes, levels and targets, from the global flags.

As in iptables/flags.py nothing is imported that the small commands would have to wait for.

Source: bootstrap.md section 1.3.
"""

from __future__ import annotations

from iptables.logline import parse_levels

TYPE_CHECKING = False  # stands for that of `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from iptables.flags import Parsed

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
