"""All sources as one page: each family once, with the samples of every source that has it.

Envoy's page is the large one, and is not held: its families are written as they come. The pages of
the application are held, by family, each of at most some megabytes. When a family of Envoy's ends,
what the application has of that name follows at once; the application's other families come last.
So what is held is bounded by the application's pages, whatever Envoy's measures, and beside them
there are only the names of families, and of one family the hashes of its series.

What comes first is right: a series that is there already is dropped, and so is a family whose type,
or whose samples' names, are another one's. A family that comes back in a page that is streamed is
dropped, too: the place for it has passed.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from agent.status.merge.families import TOTAL, UNKNOWN, Family, claims
from agent.status.merge.samples import parse_sample
from agent.status.merge.strict.reader import Reader
from agent.status.merge.strict.section import LIMIT, Section

#: Why samples are left out: the family is another one; why metadata is: it was said already.
CONFLICT: Final = "conflict"
REPEATED: Final = "repeated_family"
#: Names of families and their samples, of all sources together.
NAMES: Final = 50_000
#: Held samples that are written at once, in a third of a millisecond.
AT_ONCE: Final = 64

Dropped = Callable[[str], None]


class Book:
    """A page by family, in the terms of the merged page."""

    def __init__(self, reader: Reader, dropped: Dropped) -> None:
        """Begin a page; `dropped` is told of each line that is left out, by its reason."""
        self.dropped = dropped
        self._reader = reader
        self._families: dict[bytes, tuple[Family, bytearray]] = {}

    def feed(self, lines: Iterable[bytes]) -> None:
        """Take lines of the page."""
        for family, sample in self._reader.read(lines):
            first, text = self._families.setdefault(family.name, (family, bytearray()))
            if family is first or family.kind == first.kind:
                text += sample.line + b"\n"
            else:
                self.dropped(CONFLICT)

    def take(self, name: bytes) -> tuple[Family, bytearray] | None:
        """Return a family, which is then no longer here; None where there is none."""
        return self._families.pop(name, None)

    def names(self) -> list[bytes]:
        """Return the families that are still here."""
        return list(self._families)


class Union:
    """Writes the merged page."""

    def __init__(self, books: Iterable[Book], *, openmetrics: bool) -> None:
        """Begin a page into which some books go."""
        self._books = tuple(books)
        self._openmetrics = openmetrics
        self._names: set[bytes] = set()

    def rest(self) -> Iterator[bytes]:
        """Yield what is held and was not written yet, a little at a time."""
        for number, book in enumerate(self._books):
            for name in book.names():
                if found := book.take(name):
                    yield from self._first(found, book, self._books[number + 1 :])

    def _first(
        self, found: tuple[Family, bytearray], book: Book, others: Iterable[Book]
    ) -> Iterator[bytes]:
        family, text = found
        section = self.open(family)
        if isinstance(section, str):
            _drop(text, book, section)
            return
        yield from self._written(section, text, book)
        yield from self._joined(section, others)

    def open(self, family: Family) -> Section | str:
        """Return a family to write, or why it may not be there."""
        names = claims(family, openmetrics=self._openmetrics)
        if not self._names.isdisjoint(names):
            return CONFLICT
        if len(self._names) >= NAMES:
            return LIMIT
        self._names |= names
        return Section(family, openmetrics=self._openmetrics)

    def close(self, section: Section) -> Iterator[bytes]:
        """Yield the rest of a family that was streamed, and what is held of the same name."""
        yield section.close()
        yield from self._joined(section, self._books)

    def _joined(self, section: Section, books: Iterable[Book]) -> Iterator[bytes]:
        for book in books:
            if found := book.take(section.family.name):
                family, text = found
                if family.help or family.kind != UNKNOWN:
                    book.dropped(REPEATED)
                if family.kind == section.family.kind or UNKNOWN in (
                    family.kind,
                    section.family.kind,
                ):
                    yield from self._written(section, text, book)
                else:
                    _drop(text, book, CONFLICT)

    def _written(self, section: Section, text: bytearray, book: Book) -> Iterator[bytes]:
        section.dropped = book.dropped
        lines = _lines(text)
        while some := list(islice(lines, AT_ONCE)):
            yield b"".join(self._line(section, line) for line in some)
        yield section.close()

    def _line(self, section: Section, line: bytes) -> bytes:
        sample = parse_sample(line, openmetrics=self._openmetrics)
        assert sample  # noqa: S101 -- it was read before
        if sample.name in section.names:
            return section.add(sample)
        section.dropped(CONFLICT)
        return b""


def _lines(text: bytearray) -> Iterator[bytes]:
    start = 0
    while (end := text.find(b"\n", start)) >= 0:
        yield bytes(text[start:end])
        start = end + 1


def _drop(text: bytearray, book: Book, reason: str) -> None:
    for _ in range(text.count(b"\n")):
        book.dropped(reason)


class Streamed:
    """Writes a page that is not held."""

    def __init__(self, union: Union, reader: Reader, dropped: Dropped) -> None:
        """Begin a page; it comes after those that were streamed before it."""
        self._union = union
        self._reader = reader
        self._dropped = dropped
        self._family: Family | None = None
        #: That of the family; or why there is none.
        self._section: Section | str = CONFLICT

    def feed(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield what is to be written by now."""
        for family, sample in self._reader.read(lines):
            if family is not self._family:
                yield from self.end()
                self._family, self._section = family, self._open(family)
            if isinstance(self._section, str):
                self._dropped(self._section)
            else:
                yield self._section.add(sample)

    def end(self) -> Iterator[bytes]:
        """Yield the rest."""
        if not isinstance(self._section, str):
            yield from self._union.close(self._section)
        self._family, self._section = None, CONFLICT

    def _open(self, family: Family) -> Section | str:
        section = self._union.open(family)
        if section == CONFLICT and family.kind == "counter" and self._reader.is_modernized:
            # Its name without the suffix is another family's, as may be in the text format alone.
            section = self._union.open(family._replace(name=family.name + TOTAL, kind=UNKNOWN))
        if isinstance(section, Section):
            section.dropped = self._dropped
        return section
