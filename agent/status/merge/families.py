"""The types of metrics, what their samples are called, and how the two formats write them.

OpenMetrics names a family without the suffix of its samples (`requests` has `requests_total`), the
older text format with it. A name never changes when a page is written in the other format: it is
what people's queries ask for. A family that cannot be typed there keeps its names and is unknown.

Source: OpenMetrics 1.0.0, section 5; Prometheus text format 0.0.4.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

UNKNOWN: Final = "unknown"
#: The text format's word for it.
UNTYPED: Final = "untyped"
TOTAL: Final = b"_total"
#: Of a family's samples, by its type.
OPENMETRICS_SUFFIXES: Final[Mapping[str, tuple[bytes, ...]]] = {
    "counter": (b"_total", b"_created"),
    "gauge": (b"",),
    "histogram": (b"_bucket", b"_count", b"_sum", b"_created"),
    "summary": (b"", b"_count", b"_sum", b"_created"),
    "gaugehistogram": (b"_bucket", b"_gcount", b"_gsum"),
    "info": (b"_info",),
    "stateset": (b"",),
    UNKNOWN: (b"",),
}
TEXT_SUFFIXES: Final[Mapping[str, tuple[bytes, ...]]] = {
    "counter": (b"",),
    "gauge": (b"",),
    "histogram": (b"_bucket", b"_count", b"_sum"),
    "summary": (b"", b"_count", b"_sum"),
    UNTYPED: (b"",),
}
#: What is no escape of a HELP; patterns are compiled by their first use.
UNESCAPED: Final = rb'(\\[\\n])|\\"|["\\]'
BARE: Final = rb"[a-zA-Z_:][a-zA-Z0-9_:]*"
#: What the text format calls a gauge.
GAUGES: Final = frozenset(("info", "stateset"))
#: Types of which the text format knows all but when a series was created.
SHARED: Final = frozenset(("histogram", "summary"))


class Family(NamedTuple):
    """What a page says of some samples, as it is written."""

    name: bytes
    kind: str = UNKNOWN
    help: bytes = b""  #: escaped as its format wants it
    unit: bytes = b""


def families_of(
    declared: Family, *, openmetrics: bool, as_openmetrics: bool
) -> dict[bytes, Family]:
    """Return the names that samples of a family may have, and which family each then belongs to.

    Args:
        declared: as the page has it; its type is one of that format's.
        openmetrics: whether that is OpenMetrics.
        as_openmetrics: whether the families are to be.
    """
    if openmetrics and as_openmetrics:
        suffixes = OPENMETRICS_SUFFIXES[declared.kind]
        return {declared.name + suffix: declared for suffix in suffixes}
    if openmetrics:
        return _in_text(declared)
    if declared.kind == UNTYPED:
        declared = declared._replace(kind=UNKNOWN)
    if not as_openmetrics:
        suffixes = TEXT_SUFFIXES.get(declared.kind, (b"",))
        return {declared.name + suffix: declared for suffix in suffixes}
    return _modern(declared)


def _modern(declared: Family) -> dict[bytes, Family]:
    declared = declared._replace(help=modern_help(declared.help))
    if declared.kind == "counter":
        return {declared.name: counter(declared) or declared._replace(kind=UNKNOWN)}
    suffixes = TEXT_SUFFIXES.get(declared.kind, (b"",))
    return {declared.name + suffix: declared for suffix in suffixes}


def counter(declared: Family) -> Family | None:
    """Return a counter of the text format as OpenMetrics has it, None if its name allows none."""
    base = declared.name.removesuffix(TOTAL)
    return None if base in (b"", declared.name) else declared._replace(name=base)


def _in_text(declared: Family) -> dict[bytes, Family]:
    declared = declared._replace(help=_text_help(declared.help), unit=b"")
    found = {}
    for suffix in OPENMETRICS_SUFFIXES[declared.kind]:
        name = declared.name + suffix
        if declared.kind in SHARED and suffix != b"_created":
            found[name] = declared
        else:
            found[name] = declared._replace(name=name, kind=_text_kind(declared.kind, suffix))
    return found


def _text_kind(kind: str, suffix: bytes) -> str:
    if suffix == b"_created" or kind in GAUGES:
        return "gauge"
    return UNKNOWN if kind == "gaugehistogram" else kind


def modern_help(text: bytes) -> bytes:
    """Return a HELP of the text format as OpenMetrics escapes it: quotes, too."""

    def escape(found: re.Match[bytes]) -> bytes:
        other = {b'"': b'\\"', b"\\": b"\\\\"}
        return found[1] or b"".join(other[bytes([code])] for code in found[0])

    return re.sub(UNESCAPED, escape, text)


def _text_help(text: bytes) -> bytes:
    """Return the opposite."""

    def escape(found: re.Match[bytes]) -> bytes:
        other = {b'"': b'"', b'\\"': b'"', b"\\": b"\\\\"}
        return found[1] or other[found[0]]

    return re.sub(UNESCAPED, escape, text)


def written(name: bytes) -> bytes:
    """Return the name of a family as a page has it: in quotes where it has other characters."""
    if re.fullmatch(BARE, name):
        return name
    escaped = name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b'"', b'\\"')
    return b'"%b"' % escaped


def sample_names(family: Family, *, openmetrics: bool) -> set[bytes]:
    """Return the names that samples of a family may have in a page."""
    suffixes = OPENMETRICS_SUFFIXES if openmetrics else TEXT_SUFFIXES
    return {family.name + suffix for suffix in suffixes.get(family.kind, (b"",))}


def claims(family: Family, *, openmetrics: bool) -> set[bytes]:
    """Return the names that no other family may have, nor its samples."""
    return {family.name, *sample_names(family, openmetrics=openmetrics)}


def header(family: Family, *, openmetrics: bool) -> bytes:
    """Return the lines before a family's samples; what is not known is not said.

    Where the name is in quotes it is: not every reader knows such a name by its samples alone.
    """
    name, kind, lines = written(family.name), family.kind, []
    if family.help:
        lines.append(b"# HELP %b %b\n" % (name, family.help))
    if kind != UNKNOWN or name != family.name:
        text = UNTYPED if kind == UNKNOWN and not openmetrics else kind
        lines.append(b"# TYPE %b %b\n" % (name, text.encode()))
    if family.unit and openmetrics:
        lines.append(b"# UNIT %b %b\n" % (name, family.unit))
    return b"".join(lines)
