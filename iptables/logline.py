"""Log lines in the reference's two formats, and which are written.

Each program has a writer of its own around this: the agent's is on Python's `logging`, which a
command that lives for 30 ms does not import. For the same reason nothing is imported here.

Source: bootstrap.md section 1.3.
"""

from __future__ import annotations

TYPE_CHECKING = False  # stands for that of `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

#: A line is written when its level does not stand before the threshold.
LEVELS: Final = ("debug", "info", "warn", "error", "fatal", "none")
#: The scope that is not written.
DEFAULT_SCOPE: Final = "default"


def parse_levels(text: str, errors: list[str]) -> dict[str, str]:
    """Return the level of each scope named, applied from left to right; 'all' resets the rest.

    Args:
        text: the value of --log_output_level: a list of scope:level, a bare level for the default.
        errors: gets a line for each item that is none.
    """
    levels: dict[str, str] = {}
    for item in text.split(",") if text else ():
        scope, _, level = item.rpartition(":")
        if level not in LEVELS or ":" in scope:
            expected = f"expected scope:level, level one of {', '.join(LEVELS)}"
            errors.append(f"--log_output_level item {item!r}: {expected}")
        elif scope == "all":
            levels = {"all": level}
        else:
            levels[scope or DEFAULT_SCOPE] = level
    return levels


def level_of(levels: Mapping[str, str], scope: str = DEFAULT_SCOPE) -> str:
    """Return the level of a scope that may not be named itself."""
    for name in (scope, "all", DEFAULT_SCOPE):
        if name in levels:
            return levels[name]
    return "info"


def is_written(level: str, threshold: str) -> bool:
    """Return whether a line of a level is written."""
    return LEVELS.index(level) >= LEVELS.index(threshold)


def render(
    utc: Sequence[int],
    microseconds: int,
    level: str,
    text: str,
    *,
    scope: str = DEFAULT_SCOPE,
    caller: str = "",
    stack: str = "",
    as_json: bool = False,
) -> str:
    """Return a line without its end: parted by tabs for people, a JSON object for collectors.

    Args:
        utc: year, month, day, hour, minute and second, as time.gmtime() has them first.
        microseconds: the rest of that second.
        level: one of LEVELS.
        text: what is said; for people it may hold line breaks.
        scope: who says it.
        caller: where in the source, such as 'xds/run.py:12'.
        stack: a traceback, on lines of its own for people.
        as_json: return an object.
    """
    year, month, day, hour, minute, second = utc[:6]
    time = f"{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{microseconds:06}Z"
    scope = "" if scope == DEFAULT_SCOPE else scope
    if not as_json:
        line = "\t".join(filter(None, (time, level, scope, caller))) + f"\t{text}"
        return f"{line}\n{stack}" if stack else line
    import json  # noqa: PLC0415 - 1.5 ms that the usual format does not need

    entry = {"level": level, "time": time, "scope": scope, "caller": caller, "msg": text}
    entry |= {"stack": stack}
    kept = {key: value for key, value in entry.items() if value or key == "msg"}
    return json.dumps(kept, separators=(",", ":"), ensure_ascii=False)
