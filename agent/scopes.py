"""Which log line is written: scopes, levels and targets, from the global flags.

As in iptables/flags.py nothing is imported that the small commands would have to wait for.

Source: bootstrap.md section 1.3.
"""

from __future__ import annotations

from iptables.logline import level_of, parse_levels

TYPE_CHECKING = False  # stands for that of `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from iptables.flags import Parsed

BUILT_IN: Final = "default:info,grpc:none"

#: What gRPC calls the levels; its lines, in a format of its own, go to stderr.
GRPC_VERBOSITY: Final = {"debug": "DEBUG", "info": "INFO", "warn": "ERROR", "error": "ERROR"}


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

    def _asdict(self) -> dict[str, object]:
        """Return the fields by name, as a named tuple does; without importing what makes those."""
        return {name: getattr(self, name) for name in self.__slots__}


def parse_log(flags: Parsed, errors: list[str]) -> LogSettings:
    """Return the logging branch; unusable values are added to the errors."""
    text = flags.text("log_output_level")
    return LogSettings(
        levels=parse_levels(",".join(filter(None, (BUILT_IN, text))), errors),
        targets=tuple(dict.fromkeys(flags.texts("log_target"))),
        as_json=flags.is_on("log_as_json"),
        callers=frozenset(filter(None, flags.text("log_caller").split(","))),
    )


def grpc_verbosity(levels: Mapping[str, str]) -> str:
    """Return the GRPC_VERBOSITY with which gRPC itself logs what the scope 'grpc' asks for."""
    return GRPC_VERBOSITY.get(level_of(levels, "grpc"), "NONE")
