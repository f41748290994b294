"""Log lines in the reference's two formats, without the cost of `logging`.

Source: bootstrap.md section 1.3.
"""

#: A line is written when its level does not stand before the threshold.
LEVELS = ("debug", "info", "warn", "error", "fatal", "none")


def is_written(level: str, threshold: str) -> bool:
    """Return whether a line of this level reaches the log."""
    return LEVELS.index(level) >= LEVELS.index(threshold)


def render(utc: str, microseconds: int, level: str, message: str, *, as_json: bool) -> str:
    """Return one line with its end: tab-separated for people, an object for collectors.

    Args:
        utc: the time of the line as `YYYY-MM-DDTHH:MM:SS`.
        microseconds: the rest of that second.
        level: one of LEVELS; the scope is always the default one, which is not written.
        message: one line.
        as_json: write an object.
    """
    time = f"{utc}.{microseconds:06d}Z"
    if not as_json:
        return f"{time}\t{level}\t{message}\n"
    import json  # noqa: PLC0415 - 5 ms that only --log_as_json needs

    return json.dumps({"level": level, "time": time, "msg": message}, ensure_ascii=False) + "\n"
