"""What the agent says of Envoy's stream, for people."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.identity.report import distance

LINE: Final = "{:12}  {:5} {:24} {:>5} {:>7} {:>7} {:>9} {:>8}  {}"
TYPES: Final = "{:5} {:9} {:24} {:>9} {:>9} {:>8}  {}"
TITLES: Final = (
    "pushed",
    "type",
    "version",
    "added",
    "changed",
    "removed",
    "bytes",
    "ms",
    "answer",
)
#: Behind an ACK, if there are no more.
NAMES: Final = 3
NO_VALUE: Final = "-"
SIGNS: Final = {"added": "+", "changed": "~", "removed": "-", "unknown": "?"}

Document = Mapping[str, Any]  # JSON


def status(found: Document, now: float) -> str:
    """Return connection and types as text.

    Args:
        found: the agent's document.
        now: Unix seconds.
    """
    lines = [*_connection(found["connection"], now), *_types(found)]
    return "".join(f"{_printable(line)}\n" for line in lines)


def _connection(found: Document, now: float) -> list[str]:
    lines = [f"control plane  {found['address']}, {found['state']}"]
    if found["problem"]:
        lines.append(f"problem        {found['problem']}")
    if last := found["last_error"]:
        lines.append(f"last error     {_time(last['time'])} {last['reason']}")
    stream = found["stream"]
    if stream is None:
        return [*lines, f"stream         none now; there were {found['sessions']}"]
    began = f"since {_time(stream['since'])} ({distance(stream['since'] - now)})"
    lines += [
        f"node           {stream['node'] or 'not said yet'}",
        f"stream         number {stream['number']}, {stream['kind']}, {began}",
        f"requests       {stream['requests']}, {stream['request_bytes']} bytes",
        f"responses      {stream['responses']}, {stream['response_bytes']} bytes",
    ]
    return lines


def _types(found: Document) -> list[str]:
    if not found["types"]:
        return []
    lines = ["", TYPES.format("type", "state", "version", "resources", "bytes", "ms", "pushed")]
    for name, state in found["types"].items():
        sent = state["sent"] or {}
        shown = (
            name,
            state["state"],
            sent.get("version", NO_VALUE),
            sent.get("resources", NO_VALUE),
            sent.get("bytes", NO_VALUE),
            _number(state["milliseconds"]),
            _time(sent["time"]) if sent else NO_VALUE,
        )
        lines.append(TYPES.format(*shown).rstrip())
        if state["state"] == "STALE" and state["last_nack"]:
            lines.append(f"      refused {state['last_nack']['version']}: {_error(state)}")
    return lines


def _error(state: Document) -> str:
    return " ".join(state["last_nack"]["error"].split())


def header() -> str:
    """Return the titles above pushes."""
    return LINE.format(*TITLES)


def push(found: Document) -> str:
    """Return a push and its answer as one line."""
    line = LINE.format(
        _time(found["time"])[11:23],  # of the day, UTC
        found["type"],
        found["version"] or NO_VALUE,
        *_change(found["change"]),
        found["bytes"],
        _number(found["milliseconds"]),
        f"{found['result']}{_remark(found)}",
    )
    return _printable(line)


def _change(counts: Document | None) -> Sequence[str]:
    """Return counts; what was added or changed, nobody knows which, stands between the two."""
    if counts is None:
        return (NO_VALUE,) * 3
    unknown = counts["unknown"]
    return (
        str(counts["added"]) if not unknown else "?",
        str(counts["changed"]) if not unknown else f"?{counts['changed'] + unknown}",
        str(counts["removed"]),
    )


def _remark(found: Document) -> str:
    if found["error"] is not None:
        return f": {' '.join(found['error'].split())}"
    counts = found["change"]
    if not counts or not 0 < sum(counts.values()) <= NAMES:
        return ""
    names = found["names"].items()
    return "".join(f" {SIGNS[group]}{name}" for group, each in names for name in each if name)


def _printable(line: str) -> str:
    """Return a line that tells a terminal nothing: what others have named may hold anything."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def _number(value: float | None) -> str:
    return NO_VALUE if value is None else f"{value:.1f}"


def _time(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
