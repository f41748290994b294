"""Whatever sources write, the merged page is for strict readers, and loses nothing that fits.

The judges are prometheus_client's parsers. Its parser of the text format passes over what Go's
refuses, so that is looked for here: a type that is said twice, a series that is there twice.
"""

import re
from collections import Counter
from collections.abc import Iterable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from agent.status.exposition import Lines
from agent.status.merge.modern import Modern
from agent.status.merge.strict.reader import Reader, Splitter
from agent.status.merge.strict.union import Book, Streamed, Union
from tests.property.strategies_metrics import ALL, OLD, as_openmetrics, as_text, families

NAMES = st.sampled_from(
    ["a", "a_total", "a_created", "b", "b_count", "c_total_total", "d", "d_info", "requests"]
)
#: Lines of no format, or not of both, or of nothing that may stand where it does.
ODD = st.sampled_from(
    [
        "garbage", "a{", "a 1 2 3", "a 1 -5", "# TYPE a", "# TYPE a nonsense", "# EOF",
        'a_bucket{le="x"} 1', "# UNIT a b", "", " ", 'a_total 1 # {x="1"} 3', "# HELP b x\r",
        "\udcff", "b{} 0x1p3", "a 1_000", "b\t5\t", '{"a",b="c"} 1', 'a{"x"="1",x="2"} 1',
        'a{x="1",x="2"} 1', "# comment", 'a{__name__="b"} 1', '# TYPE "b.c" gauge', '{"b.c"} 1',
        "a_sum 1", 'a_bucket{le="+Inf"} 3', "a_count 4", "a -1", "a NaN",
    ]
)  # fmt: skip
PIECES = st.integers(1, 200)


def pages(*, openmetrics: bool) -> st.SearchStrategy[str]:
    if openmetrics:
        family = families(NAMES, ALL).map(as_openmetrics)
    else:
        family = st.tuples(families(NAMES, OLD), st.booleans()).map(
            lambda drawn: as_text(drawn[0], total=drawn[1])
        )
    line = ODD.map(lambda text: text + "\n")
    return st.lists(family | line, max_size=5).map("".join)


#: Whether a page is OpenMetrics, and the page.
HELD = st.booleans().flatmap(lambda new: st.tuples(st.just(new), pages(openmetrics=new)))


def cut(text: str, size: int) -> Iterable[bytes]:
    data = text.encode("utf-8", "surrogateescape")
    return (data[start : start + size] for start in range(0, len(data), size))


def unite(
    streamed: Iterable[str],
    held: Iterable[tuple[bool, str]],
    *,
    openmetrics: bool,
    size: int = 50,
) -> tuple[str, Counter[str]]:
    """Return the merged page, and why lines were left out of it."""
    dropped: Counter[str] = Counter()

    def drop(reason: str) -> None:
        dropped[reason] += 1

    books = []
    for is_openmetrics, text in held:
        reader = Reader(drop, openmetrics=is_openmetrics, as_openmetrics=openmetrics)
        book, splitter = Book(reader, drop), Splitter(drop)
        for piece in cut(text, size):
            book.feed(splitter.feed(piece))
        book.feed(splitter.end())
        books.append(book)
    union = Union(books, openmetrics=openmetrics)
    out: list[bytes] = []
    for text in streamed:
        reader = Reader(drop, openmetrics=False, as_openmetrics=openmetrics)
        stream, splitter = Streamed(union, reader, drop), Splitter(drop)
        for piece in cut(text, size):
            out += stream.feed(splitter.feed(piece))
        out += [*stream.feed(splitter.end()), *stream.end()]
    out += union.rest()
    return b"".join(out).decode(), dropped


def judge(text: str, *, openmetrics: bool) -> Counter[str]:
    """Return how many samples of each name a strict parser finds; an error if it finds fault."""
    if openmetrics:
        found = openmetrics_parser.text_string_to_metric_families(text + "# EOF\n")  # type: ignore[no-untyped-call]  # has no types
    else:
        # As a counter, `a` would be taken for `a_total`.
        found = text_string_to_metric_families(text.replace(" counter\n", " gauge\n"))
        types = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
        assert len(types) == len(set(types))
    samples = [sample for family in found for sample in family.samples]
    series = Counter((sample.name, *sorted(sample.labels.items())) for sample in samples)
    assert openmetrics or max(series.values(), default=1) == 1
    return Counter(sample.name for sample in samples)


MANY = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@MANY
@given(
    st.lists(pages(openmetrics=False), max_size=2),
    st.lists(HELD, max_size=3),
    st.booleans(),
    PIECES,
)
def test_a_strict_page_is_for_strict_parsers(
    streamed: list[str],
    held: list[tuple[bool, str]],
    openmetrics: bool,  # noqa: FBT001 -- drawn
    size: int,
) -> None:
    text, _ = unite(streamed, held, openmetrics=openmetrics, size=size)

    judge(text, openmetrics=openmetrics)


@MANY
@given(st.lists(pages(openmetrics=False), max_size=2), st.lists(HELD, max_size=3), st.booleans())
def test_what_was_merged_once_is_left_as_it_is(
    streamed: list[str],
    held: list[tuple[bool, str]],
    openmetrics: bool,  # noqa: FBT001 -- drawn
) -> None:
    text, _ = unite(streamed, held, openmetrics=openmetrics)

    assert unite([], [(openmetrics, text)], openmetrics=openmetrics) == (text, Counter())


def distinct(name: str, kinds: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    """Draw families whose names, and those of their samples, are nobody else's."""
    write = as_openmetrics if kinds is ALL else as_text
    return st.lists(families(st.just(name), kinds), max_size=4).map(
        lambda drawn: [
            write(family._replace(name=f"{name}{number}x")) for number, family in enumerate(drawn)
        ]
    )


def count_samples(text: str) -> int:
    return sum(1 for line in text.splitlines() if line and not line.startswith("#"))


@MANY
@given(distinct("e", OLD), distinct("t", OLD), distinct("m", ALL), st.booleans())
def test_nothing_is_left_out_of_what_fits(
    envoy: list[str],
    old: list[str],
    new: list[str],
    openmetrics: bool,  # noqa: FBT001 -- drawn
) -> None:
    held = [(False, "".join(old)), (True, "".join(new))]

    text, dropped = unite(["".join(envoy)], held, openmetrics=openmetrics)

    assert dropped == Counter()
    found = judge(text, openmetrics=openmetrics)
    assert found.total() == sum(map(count_samples, (*envoy, *old, *new)))


def without_times(text: str) -> str:
    """Return a page as Envoy writes them."""
    return re.sub(r"^([^#].*[}a-z_] \S+) \d+$", r"\1", text, flags=re.MULTILINE)


@MANY
@given(distinct("e", OLD), distinct("m", ALL), PIECES)
def test_envoys_page_beside_openmetrics_is_for_its_parser_and_keeps_its_samples(
    envoy: list[str], application: list[str], size: int
) -> None:
    """D19: its samples are not looked at, and so have no time and no more blanks than they must."""
    page = without_times("".join(envoy))
    lines, modern = Lines(), Modern()

    pieces = [modern.feed(lines.feed(piece)) for piece in cut(page, size)]
    text = b"".join([*pieces, modern.feed(lines.end())]).decode()

    judge(text + "".join(application), openmetrics=True)
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        line for line in page.splitlines() if not line.startswith("#")
    ]
