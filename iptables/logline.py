"""Log lines in the reference's two formats, and which are written.

The agent's own logging has the same formats on Python's logging module, which a command that
lives for 30 ms does not import.

Source: bootstrap.md section 1.3.
"""

from typing import Final

from iptables.flags import UsageError

LEVELS: Final = ("debug", "info", "warn", "error", "fatal", "none")
SCOPE: Final = "default"


def threshold(text: str) -> str:
    """Return the level from which lines of our scope are written.

    Args:
        text: the value of --log_output_level.

    Raises:
        UsageError: an item is not scope:level.
    """
    found = "info"
    for item in filter(None, text.split(",")):
        scope, _, level = item.rpartition(":")
        if level not in LEVELS or ":" in scope:
            raise UsageError(
                f"--log_output_level item {item!r}: expected scope:level, "
                f"level one of {', '.join(LEVELS)}"
            )
        if scope in ("", SCOPE, "all"):
            found = level
    return found


def is_written(level: str, threshold: str) -> bool:
    """Return whether a line of a level is written."""
    return LEVELS.index(level) >= LEVELS.index(threshold)


def console(time: str, level: str, text: str, caller: str = "") -> str:
    """Return a line of tab-separated parts; the text may hold line breaks."""
    return "\t".join(filter(None, (time, level, caller, text))) + "\n"


def as_json(time: str, level: str, text: str, caller: str = "") -> str:
    """Return a line that is a JSON object."""
    import json  # noqa: PLC0415 - 1.5 ms that the usual format does not need

    entry = {"level": level, "time": time, "caller": caller, "msg": text}
    if not caller:
        del entry["caller"]
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False) + "\n"
