"""Pages of metrics as sources write them, right and wrong, in either format."""

import math
from typing import NamedTuple

from hypothesis import strategies as st

LABEL_NAMES = st.sampled_from(["a", "code", "le_", "x1"])
LABEL_VALUES = st.sampled_from(
    ["", "200", 'quote"d', "back\\slash", "new\nline", " # {", "{", "}", ",le=", "é", "a b 1 2"]
)
LABELS = st.dictionaries(LABEL_NAMES, LABEL_VALUES, max_size=3)
COUNTS = st.integers(0, 10**6)
VALUES = st.one_of(st.integers(-5, 5), st.floats(width=32), st.just(math.inf), st.just(math.nan))
TIMES = st.none() | st.integers(0, 2_000_000_000_000)  # milliseconds
BOUNDS = st.lists(st.floats(-10, 10, allow_nan=False, width=16), unique=True, max_size=3).map(
    sorted
)
HELP = st.sampled_from(["", "Help.", 'with "quotes"', "back\\slash", "two\nlines", "é"])


class Point(NamedTuple):
    """A sample, before it is written."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float
    exemplar: str = ""


class Written(NamedTuple):
    """A family, before it is written."""

    name: str
    kind: str  #: as OpenMetrics has it
    help: str
    groups: tuple[tuple[Point, ...], ...]  #: of samples with the same labels
    times: tuple[int | None, ...]  #: of the groups


def number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


@st.composite
def groups(draw: st.DrawFn, kind: str) -> tuple[Point, ...]:
    labels = tuple(draw(LABELS).items())
    if kind == "counter":
        exemplar = draw(st.sampled_from(["", '{trace="1"} 0.5', "{} 1 2.5"]))
        created = [Point("_created", labels, 1.5)] if draw(st.booleans()) else []
        return (Point("_total", labels, draw(COUNTS), exemplar), *created)
    if kind == "histogram":
        bounds = [*draw(BOUNDS), math.inf]
        counts = sorted(draw(COUNTS) for _ in bounds)
        points = [
            Point("_bucket", (*labels, ("le", number(bound))), count)
            for bound, count in zip(bounds, counts, strict=True)
        ]
        if bounds[0] < 0:
            return tuple(points)  # no sum, and so no count
        return (*points, Point("_sum", labels, draw(COUNTS)), Point("_count", labels, counts[-1]))
    if kind == "summary":
        quantiles = [
            ("quantile", text) for text in draw(st.sets(st.sampled_from(["0", "0.5", "1"])))
        ]
        points = [Point("", (*labels, each), draw(COUNTS)) for each in quantiles]
        return (*points, Point("_sum", labels, draw(COUNTS)), Point("_count", labels, draw(COUNTS)))
    if kind == "info":
        return (Point("_info", labels, 1),)
    return (Point("", labels, draw(VALUES)),)


def families(names: st.SearchStrategy[str], kinds: tuple[str, ...]) -> st.SearchStrategy[Written]:
    return st.sampled_from(kinds).flatmap(
        lambda kind: st.builds(
            build,
            names,
            st.just(kind),
            HELP,
            st.lists(groups(kind), max_size=4),
            st.lists(TIMES, min_size=4, max_size=4),
        )
    )


def build(
    name: str, kind: str, text: str, drawn: list[tuple[Point, ...]], times: list[int | None]
) -> Written:
    found: dict[frozenset[tuple[str, str]], tuple[Point, ...]] = {}
    for group in drawn:
        labels = {label for label in group[-1].labels if label[0] not in ("le", "quantile")}
        found.setdefault(frozenset(labels), group)
    if kind == "info":
        times = [None] * 4
    return Written(name, kind, text, tuple(found.values()), tuple(times))


ALL = ("counter", "gauge", "histogram", "summary", "info", "unknown")
OLD = ("counter", "gauge", "histogram", "summary", "unknown")


def escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def line(name: str, point: Point, time: str, *, openmetrics: bool) -> str:
    labels = ",".join(f'{key}="{escape(value)}"' for key, value in point.labels)
    text = f"{name}{point.suffix}" + (f"{{{labels}}}" if labels else "")
    text += f" {number(point.value)}" + (f" {time}" if time else "")
    if openmetrics and point.exemplar:
        text += f" # {point.exemplar}"
    return text + "\n"


def as_openmetrics(family: Written) -> str:
    lines = []
    if family.help:
        lines.append(f"# HELP {family.name} {escape(family.help)}\n")
    lines.append(f"# TYPE {family.name} {family.kind}\n")
    for group, time in zip(family.groups, family.times, strict=False):
        text = "" if time is None else str(time / 1000)
        lines += [line(family.name, point, text, openmetrics=True) for point in group]
    return "".join(lines)


def as_text(family: Written, *, total: bool = True) -> str:
    """Return a family of OLD as the text format has it, a counter with suffix or without."""
    kind = {"unknown": "untyped"}.get(family.kind, family.kind)
    suffix = "_total" if kind == "counter" and total else ""
    lines = []
    if family.help:
        text = family.help.replace("\\", r"\\").replace("\n", r"\n")
        lines.append(f"# HELP {family.name}{suffix} {text}\n")
    lines.append(f"# TYPE {family.name}{suffix} {kind}\n")
    for group, time in zip(family.groups, family.times, strict=False):
        for point in group:
            if point.suffix == "_created":
                continue
            own = point._replace(suffix=suffix) if kind == "counter" else point
            lines.append(
                line(family.name, own, "" if time is None else str(time), openmetrics=False)
            )
    return "".join(lines)
