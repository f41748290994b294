"""A page line by line: which family each sample belongs to, in the terms of the merged page."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from agent.status.merge.families import (
    BARE,
    OPENMETRICS_SUFFIXES,
    TEXT_SUFFIXES,
    UNKNOWN,
    UNTYPED,
    Family,
    families_of,
)
from agent.status.merge.samples import QUOTED, Sample, in_other_format, parse_sample, unquote

#: Why a line is left out: it cannot be read, or not where it stands.
INVALID: Final = "invalid"
END: Final = b"# EOF"
#: A longer line is none of metrics.
LINE_BYTES: Final = 64 * 1024
TEXT_METADATA: Final = rb"#[ \t]+(HELP|TYPE)[ \t]+(%b|%b)(?:[ \t]+(.*))?" % (BARE, QUOTED)
OPENMETRICS_METADATA: Final = rb"# (HELP|TYPE|UNIT) (%b|%b)(?: (.*))?" % (BARE, QUOTED)
UNITLESS: Final = frozenset(("info", "stateset"))

Dropped = Callable[[str], None]


class Splitter:
    """Lines out of pieces; what is too long for one is dropped."""

    def __init__(self, dropped: Dropped) -> None:
        self._dropped = dropped
        self._held = b""
        self._is_skipping = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that end in a piece, without their ends."""
        lines = (self._held + piece).split(b"\n")
        self._held = lines.pop()
        if self._is_skipping and lines:
            self._is_skipping = False
            del lines[0]
        if self._is_skipping or len(self._held) > LINE_BYTES:
            if not self._is_skipping:
                self._dropped(INVALID)
            self._held, self._is_skipping = b"", True
        return lines

    def end(self) -> list[bytes]:
        """Return the rest of a page that was read completely."""
        return [self._held] if self._held else []


class Reader:
    """Samples of one page with their families; what cannot be read is dropped."""

    def __init__(self, dropped: Dropped, *, openmetrics: bool, as_openmetrics: bool) -> None:
        """Begin a page.

        Args:
            dropped: told of each line that is left out.
            openmetrics: whether the page is of that format, and not the older one.
            as_openmetrics: whether the merged page is.
        """
        self._dropped = dropped
        self._openmetrics = openmetrics
        self._as_openmetrics = as_openmetrics
        self._metadata = re.compile(
            OPENMETRICS_METADATA if openmetrics else TEXT_METADATA, re.DOTALL
        )
        self._kinds = OPENMETRICS_SUFFIXES if openmetrics else TEXT_SUFFIXES
        self._begin(b"")

    @property
    def is_modernized(self) -> bool:
        """Whether a page of text becomes OpenMetrics."""
        return self._as_openmetrics and not self._openmetrics

    def _begin(self, name: bytes) -> None:
        self._declared = Family(name, UNKNOWN if self._openmetrics else UNTYPED)
        self._said: set[bytes] = set()
        #: By the names that its samples may have; none before the first of them.
        self._families: dict[bytes, Family] = {}

    def read(self, lines: Iterable[bytes]) -> Iterator[tuple[Family, Sample]]:
        """Yield what there is in some lines."""
        for each in lines:
            line = each.rstrip(b"\r") if self._openmetrics else each.strip(b" \t\r")
            if not _is_text(line):
                self._dropped(INVALID)
            elif line.startswith(b"#"):
                self._take_metadata(line)
            elif line:
                sample = parse_sample(line, openmetrics=self._openmetrics)
                if sample:
                    yield self._family_of(sample.name), self._converted(sample)
                else:
                    self._dropped(INVALID)

    def _take_metadata(self, line: bytes) -> None:
        found = self._metadata.fullmatch(line)
        if found is None:
            if self._openmetrics and line != END:
                self._dropped(INVALID)
            return  # a comment
        keyword, name, text = found.groups(b"")
        name = unquote(name) if name.startswith(b'"') else name
        if name != self._declared.name:
            self._begin(name)
        if self._families or keyword in self._said:
            self._dropped(INVALID)  # too late, or for the second time
            return
        self._said.add(keyword)
        self._declare(keyword, text)

    def _declare(self, keyword: bytes, text: bytes) -> None:
        if keyword == b"HELP":
            self._declared = self._declared._replace(help=text)
        elif keyword == b"UNIT":
            self._declared = self._declared._replace(unit=text)
        elif (kind := text.strip().decode()) in self._kinds:
            self._declared = self._declared._replace(kind=kind)
        else:
            self._dropped(INVALID)

    def _converted(self, sample: Sample) -> Sample:
        if self._openmetrics == self._as_openmetrics:
            return sample
        return in_other_format(sample, as_openmetrics=self._as_openmetrics)

    def _family_of(self, name: bytes) -> Family:
        if not self._families:
            self._families = self._all_families()
        if name not in self._families:
            self._begin(name)
            self._families = self._all_families()
        return self._families[name]

    def _all_families(self) -> dict[bytes, Family]:
        declared = self._declared
        if declared.kind in UNITLESS or not declared.name.endswith(b"_" + declared.unit):
            declared = declared._replace(unit=b"")
        return families_of(
            declared, openmetrics=self._openmetrics, as_openmetrics=self._as_openmetrics
        )


def _is_text(line: bytes) -> bool:
    """Return whether a line is UTF-8, as every value of a label must be."""
    if line.isascii():
        return True
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
