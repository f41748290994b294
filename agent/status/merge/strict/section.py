"""One family of the merged page while its samples are written, each series once.

In the text format a series is its name and labels, and may come in any order. OpenMetrics has the
samples of one set of labels, such as a histogram's buckets, count and sum, follow each other: they
are taken or left together, and must fit each other.

Source: OpenMetrics 1.0.0, sections 4.5 and 5.
"""

import math
from collections.abc import Callable
from typing import Final

from agent.status.merge.families import UNKNOWN, Family, header, sample_names
from agent.status.merge.samples import Sample, label_name, without_exemplar

#: Why a sample is left out.
DUPLICATE: Final = "duplicate"
INVALID: Final = "invalid"
LIMIT: Final = "limit"
#: Known by their hashes: some 8 MB for as long as this family is written.
SERIES: Final = 100_000
#: Of samples with the same labels, such as a histogram's, which is held until it is complete.
MEMBERS: Final = 2_000
EXEMPLAR_CHARACTERS: Final = 128
HISTOGRAMS: Final = frozenset(("histogram", "gaugehistogram"))
COUNTS: Final = (b"_bucket", b"_count", b"_gcount")
SUMS: Final = (b"_sum", b"_gsum")


class Section:
    """Turns samples of one family into lines."""

    def __init__(self, family: Family, *, openmetrics: bool) -> None:
        """Begin a family."""
        self.family = family
        self.names = sample_names(family, openmetrics=openmetrics)
        #: Told why a sample is left out; it is of the page that is read now.
        self.dropped: Callable[[str], None] = lambda _: None
        self._openmetrics = openmetrics
        self._header = header(family, openmetrics=openmetrics)
        self._series: set[int] = set()
        self._group: bytes | None = None
        self._members: set[bytes] = set()
        #: Of the samples that belong together: with the same labels, or all of an info.
        self._timestamp: bytes | None = None
        self._held: list[Sample] = []

    def add(self, sample: Sample) -> bytes:
        """Return what is to be written by now."""
        if not _is_possible(self.family, sample, openmetrics=self._openmetrics):
            self.dropped(INVALID)
            return b""
        if not self._openmetrics:
            key = b"\0".join((sample.name, *sorted(sample.labels)))
            return self._written(sample.line + b"\n") if self._is_new(key) else b""
        group, member = _divide(self.family, sample)
        finished = b""
        if group != self._group:
            finished = self.close()
            if not self._is_new(group):
                return finished
            self._group = group
            if self._timestamp is None or self.family.kind != "info":
                self._timestamp = sample.timestamp
        return finished + self._add_member(member, sample)

    def _is_new(self, key: bytes) -> bool:
        number = hash(key)
        if number in self._series:
            self.dropped(DUPLICATE)
            return False
        if len(self._series) >= SERIES:
            self.dropped(LIMIT)
            return False
        self._series.add(number)
        return True

    def _add_member(self, member: bytes, sample: Sample) -> bytes:
        if member in self._members:
            self.dropped(DUPLICATE)
            return b""
        if sample.timestamp != self._timestamp or len(self._members) >= MEMBERS:
            self.dropped(INVALID)
            return b""
        self._members.add(member)
        if sample.exemplar and not _may_have_exemplar(self.family, sample):
            sample = without_exemplar(sample)
        if self.family.kind not in HISTOGRAMS:
            return self._written(sample.line + b"\n")
        self._held.append(sample)
        return b""

    def close(self) -> bytes:
        """Return the rest of what is to be written; the family may go on."""
        held, self._held = self._held, []
        self._group, self._members = None, set()
        if not held:
            return b""
        if not is_whole(held, self.family.name):
            for _ in held:
                self.dropped(INVALID)
            return b""
        return self._written(b"".join(sample.line + b"\n" for sample in held))

    def _written(self, text: bytes) -> bytes:
        start, self._header = self._header, b""
        return start + text


def _divide(family: Family, sample: Sample) -> tuple[bytes, bytes]:
    """Return what a sample has in common with those beside it, and what tells it from them."""
    special = _special_label(family, sample)
    others = sorted(item for item in sample.labels if label_name(item) != special)
    own = [item for item in sample.labels if label_name(item) == special] if special else []
    return b"\0".join(others), b"\0".join((sample.name, *own))


def _special_label(family: Family, sample: Sample) -> bytes:
    if family.kind in HISTOGRAMS and sample.name.endswith(b"_bucket"):
        return b"le"
    if family.kind == "summary" and sample.name == family.name:
        return b"quantile"
    return family.name if family.kind == "stateset" else b""


def _label(sample: Sample, name: bytes) -> bytes | None:
    """Return the value of a label as written, None if it is not there."""
    start = name + b'="'
    return next((item[len(start) :] for item in sample.labels if item.startswith(start)), None)


def _number(text: bytes | None) -> float:
    """Return a number, NaN where there is none."""
    try:
        return float(text) if text else math.nan
    except ValueError:
        return math.nan


def _is_possible(family: Family, sample: Sample, *, openmetrics: bool) -> bool:
    """Return whether a sample can be one of its family's."""
    special = _special_label(family, sample)
    if special == b"le" and math.isnan(_bound(sample)):
        return False
    if special == b"quantile" and not 0 <= _number(_label(sample, special)) <= 1:
        return False
    if not openmetrics or family.kind in ("gauge", UNKNOWN):
        return True
    return _has_possible_value(family, sample)


def _bound(sample: Sample) -> float:
    text = _label(sample, b"le")
    bound = _number(text)
    return math.nan if math.isinf(bound) and text not in (b"+Inf", b"-Inf") else bound


def _has_possible_value(family: Family, sample: Sample) -> bool:
    value, suffix = float(sample.value), sample.name[len(family.name) :]
    if family.kind == "info":
        return value == 1
    if family.kind == "stateset":
        return value in (0, 1) and _label(sample, family.name) is not None
    if suffix in COUNTS:
        return value >= 0 and value.is_integer()
    if suffix == b"_gsum":
        return not math.isnan(value)
    if suffix in (b"_total", b"_sum"):
        return value >= 0
    return suffix == b"_created" or not value < 0  # a quantile may be NaN: of nothing


def _may_have_exemplar(family: Family, sample: Sample) -> bool:
    if not sample.name.endswith(b"_total" if family.kind == "counter" else b"_bucket"):
        return False
    labels = sample.exemplar[: sample.exemplar.rindex(b"}")]
    # Their escapes are counted, too: what is too long either way is rare.
    return family.kind in (*HISTOGRAMS, "counter") and len(labels) <= EXEMPLAR_CHARACTERS


def is_whole(samples: list[Sample], name: bytes) -> bool:
    """Return whether samples with one set of labels make a histogram.

    Its buckets ascend to the infinite one, which counts all; count and sum come together, and no
    sum with negative buckets.
    """
    parts = {sample.name[len(name) :]: float(sample.value) for sample in samples}
    buckets = [
        (_bound(sample), float(sample.value))
        for sample in samples
        if sample.name.endswith(b"_bucket")
    ]
    bounds, counts = [bound for bound, _ in buckets], [count for _, count in buckets]
    if bounds != sorted(set(bounds)) or counts != sorted(counts) or bounds[-1:] != [math.inf]:
        return False
    total = parts.get(b"_count", parts.get(b"_gcount"))
    sums = [parts[suffix] for suffix in SUMS if suffix in parts]
    if (total is None) is bool(sums) or (total is not None and total != counts[-1]):
        return False
    is_negative = bounds[0] < 0
    if b"_sum" in parts and is_negative:
        return False
    return is_negative or not any(value < 0 for value in sums)
