from collections import Counter

import pytest

from agent.status.merge.strict.reader import Reader
from agent.status.merge.strict.union import NAMES, Book, Streamed, Union

APPLICATION = '# TYPE a gauge\na{b="app"} 1\n'


def unite(streamed: str, *pages: str, openmetrics: bool = False) -> tuple[str, dict[str, int]]:
    """Return the page of a streamed page, in text format, and some that are held."""
    dropped: Counter[str] = Counter()

    def drop(reason: str) -> None:
        dropped[reason] += 1

    def reader(*, is_openmetrics: bool) -> Reader:
        return Reader(drop, openmetrics=is_openmetrics, as_openmetrics=openmetrics)

    books = [Book(reader(is_openmetrics=openmetrics), drop) for _ in pages]
    for book, page in zip(books, pages, strict=True):
        book.feed(page.encode().split(b"\n"))
    union = Union(books, openmetrics=openmetrics)
    stream = Streamed(union, reader(is_openmetrics=False), drop)
    pieces = [*stream.feed(streamed.encode().split(b"\n")), *stream.end(), *union.rest()]
    return b"".join(pieces).decode(), dict(dropped)


def test_a_family_of_several_sources_stands_together_at_the_first() -> None:
    text, dropped = unite(
        "# TYPE a gauge\na 1\n# TYPE c gauge\nc 1\n",
        "# TYPE b gauge\nb 1\n" + APPLICATION,
        '# TYPE b gauge\nb{b="2"} 1\n' + APPLICATION + "d 1\n",
    )

    assert text == (
        """# TYPE a gauge
a 1
a{b="app"} 1
# TYPE c gauge
c 1
# TYPE b gauge
b 1
b{b="2"} 1
d 1
"""
    )
    assert dropped == {"repeated_family": 3, "duplicate": 1}


def test_of_a_series_that_several_have_the_first_is_right() -> None:
    """cases.md M6."""
    text, dropped = unite("a 1\n", "a 2\n", "a 3\nb 4\nb 5\n")

    assert text == "a 1\nb 4\n"
    assert dropped == {"duplicate": 3}


def test_of_types_that_differ_the_first_is_right() -> None:
    text, dropped = unite("# TYPE a counter\na 1\n", APPLICATION, "# TYPE b gauge\nb 1\n")

    assert text == "# TYPE a counter\na 1\n# TYPE b gauge\nb 1\n"
    assert dropped == {"repeated_family": 1, "conflict": 1}


@pytest.mark.parametrize(
    ("streamed", "held"),
    [("# TYPE a gauge\na 1\n", 'a{b="1"} 1\n'), ("a 1\n", '# TYPE a gauge\na{b="1"} 1\n')],
)
def test_a_type_that_is_not_said_is_no_conflict(streamed: str, held: str) -> None:
    text, dropped = unite(streamed, held)

    assert text == streamed + 'a{b="1"} 1\n'
    assert dropped.get("conflict") is None


@pytest.mark.parametrize(
    ("streamed", "held"),
    [
        ("# TYPE a histogram\na_sum 1\n", '# TYPE a_sum gauge\na_sum{b="1"} 1\n'),
        ("# TYPE a_sum gauge\na_sum 1\n", '# TYPE a summary\na_sum{b="1"} 1\n'),
        ("a_sum 1\n", '# TYPE a summary\na_sum{b="1"} 1\n'),
    ],
)
def test_a_family_whose_samples_are_another_ones_is_a_conflict(streamed: str, held: str) -> None:
    assert unite(streamed, held) == (streamed, {"conflict": 1})


def test_a_sample_that_the_joined_family_cannot_have_is_a_conflict() -> None:
    counter, plain = "# TYPE a counter\na_total 1\n", "a 1\n"

    text, dropped = unite("", counter, plain, openmetrics=True)

    assert text == counter
    assert dropped == {"conflict": 1}


def test_a_family_that_comes_back_is_too_late_in_a_stream_and_joined_in_a_held_page() -> None:
    page = 'a 1\nb 1\na{b="2"} 1\n'

    assert unite(page) == ("a 1\nb 1\n", {"conflict": 1})
    assert unite("", page) == ('a 1\na{b="2"} 1\nb 1\n', {})
    twice = '# TYPE a gauge\na 1\nb 1\n# TYPE a counter\na{b="2"} 1\n'
    assert unite("", twice) == ("# TYPE a gauge\na 1\nb 1\n", {"conflict": 1})


def test_a_counter_whose_name_is_taken_without_suffix_keeps_its_name() -> None:
    taken = "# TYPE a gauge\na 1\n# TYPE a_total counter\na_total 1\n"

    assert unite(taken, openmetrics=True) == ("# TYPE a gauge\na 1\na_total 1\n", {})
    assert unite(taken) == (taken, {})


def test_envoys_text_and_the_applications_openmetrics_are_one_family() -> None:
    text, dropped = unite(
        "# TYPE a_total counter\na_total 1\n",
        '# TYPE a counter\na_total{b="1"} 2 # {} 1\n',
        openmetrics=True,
    )

    assert text == '# TYPE a counter\na_total 1\na_total{b="1"} 2 # {} 1\n'
    assert dropped == {"repeated_family": 1}


def test_a_value_may_hold_what_ends_lines_elsewhere() -> None:
    page = 'a{b="1\r2\x0b3\u2028"} 1\n'

    assert unite("", page) == (page, {})


def test_no_more_names_are_kept_than_there_is_room_for() -> None:
    page = "".join(f"a{number} 1\n" for number in range(NAMES + 1))

    text, dropped = unite(page, f'a1{{b="1"}} 1\na{NAMES + 1} 1\n')

    assert text.count("\n") == NAMES + 1
    assert 'a1 1\na1{b="1"} 1\n' in text
    assert dropped == {"limit": 2}
