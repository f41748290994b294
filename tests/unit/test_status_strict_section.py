from collections import Counter

import pytest

from agent.status.merge.families import Family
from agent.status.merge.samples import parse_sample
from agent.status.merge.strict.section import MEMBERS, SERIES, Section


def write(kind: str, text: str, *, openmetrics: bool = True) -> tuple[str, dict[str, int]]:
    """Return what becomes of samples of a family named `a`, and what was dropped."""
    dropped: Counter[str] = Counter()
    section = Section(Family(b"a", kind), openmetrics=openmetrics)
    section.dropped = lambda reason: dropped.update([reason])
    out = []
    for line in text.splitlines():
        sample = parse_sample(line.encode(), openmetrics=openmetrics)
        assert sample, line
        out.append(section.add(sample))
    out.append(section.close())
    return b"".join(out).decode().removeprefix(f"# TYPE a {kind}\n"), dict(dropped)


def kept(kind: str, text: str, *, openmetrics: bool = True) -> bool:
    return write(kind, text, openmetrics=openmetrics) == (text, {})


def test_a_series_is_there_once_whatever_the_order_of_its_labels() -> None:
    text = 'a{b="1",c="2"} 1\na{c="2",b="1"} 2\na{b="1"} 3\na 4\na 5\n'

    for openmetrics in (False, True):
        assert write("gauge", text, openmetrics=openmetrics) == (
            'a{b="1",c="2"} 1\na{b="1"} 3\na 4\n',
            {"duplicate": 2},
        )


def test_in_text_a_series_may_come_in_any_order() -> None:
    text = 'a_bucket{le="1",b="1"} 1\na_bucket{le="1"} 1\na_bucket{le="+Inf",b="1"} 1\na_sum 1\n'

    assert kept("histogram", text, openmetrics=False)


def test_in_openmetrics_what_has_the_same_labels_stands_together() -> None:
    text = "a_total 1\na_created 1\n"

    assert kept("counter", text + 'a_total{b="1"} 1\na_created{b="1"} 1\n')
    assert write("counter", text + 'a_total{b="1"} 1\na_created 1\n') == (
        text + 'a_total{b="1"} 1\n',
        {"duplicate": 1},
    )


WHOLE = """a_bucket{b="1",le="0.5"} 1
a_bucket{b="1",le="+Inf"} 2
a_sum{b="1"} 1.5
a_count{b="1"} 2
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ('a_sum{b="1"} 1.5\na_count{b="1"} 2\n', ""),
        ("0.5", "-5"),
    ],
)
def test_a_histogram_is_written_whole(old: str, new: str) -> None:
    text = WHOLE.replace(old, new)
    if "-5" in text:
        text = text.partition("a_sum")[0]  # a sum would not count up

    assert kept("histogram", text + text.replace('"1"', '"2"'))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('a_bucket{b="1",le="+Inf"} 2\n', ""),
        ("+Inf", "1"),
        ('le="0.5"} 1', 'le="0.5"} 3'),
        ('a_count{b="1"} 2', 'a_count{b="1"} 3'),
        ('a_count{b="1"} 2\n', ""),
        ('a_sum{b="1"} 1.5\n', ""),
        ("0.5", "-0.5"),
        (
            'a_bucket{b="1",le="0.5"} 1\n',
            'a_bucket{b="1",le="0.7"} 0\na_bucket{b="1",le="0.5"} 1\n',
        ),
    ],
    ids=[
        "infinite bucket",
        "its bound",
        "order",
        "count",
        "no count",
        "no sum",
        "negative",
        "bounds",
    ],
)
def test_a_histogram_that_does_not_fit_is_left_out(old: str, new: str) -> None:
    text = WHOLE.replace(old, new)
    assert text != WHOLE

    written, dropped = write("histogram", text + WHOLE.replace('"1"', '"2"'))

    assert written == WHOLE.replace('"1"', '"2"')
    assert dropped == {"invalid": text.count("\n")}


def test_a_gauge_histogram_may_have_a_negative_sum_with_negative_buckets() -> None:
    text = 'a_bucket{le="-1"} 1\na_bucket{le="+Inf"} 2\na_gcount 2\na_gsum -3\n'

    assert kept("gaugehistogram", text)
    assert write("gaugehistogram", text.replace('"-1"', '"1"'))[1] == {"invalid": 4}


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("counter", "a_total -1"),
        ("counter", "a_total NaN"),
        ("summary", "a 1"),
        ("summary", 'a{quantile="1.5"} 1'),
        ("summary", 'a{quantile="x"} 1'),
        ("summary", 'a{quantile="0.5"} -1'),
        ("summary", "a_count 1.5"),
        ("summary", "a_sum NaN"),
        ("histogram", 'a_bucket{le="x"} 1'),
        ("histogram", 'a_bucket{le="inf"} 1'),
        ("histogram", 'a_bucket{le="+Inf"} 1.5'),
        ("histogram", "a_bucket 1"),
        ("gaugehistogram", "a_gsum NaN"),
        ("info", "a_info 2"),
        ("stateset", "a 1"),
        ("stateset", 'a{a="x"} 2'),
    ],
)
def test_a_value_that_cannot_be_is_left_out(kind: str, line: str) -> None:
    assert write(kind, line) == ("", {"invalid": 1})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("gauge", "a NaN\n"),
        ("unknown", "a -Inf\n"),
        ("counter", "a_total 1.5\na_created -1\n"),
        ("summary", 'a{quantile="0.5"} NaN\na{quantile="1"} 1\na_sum 1\na_count 1\n'),
        ("info", 'a_info{b="1"} 1\na_info{b="2"} 1\n'),
        ("stateset", 'a{a="x"} 1\na{a="y"} 0\na{b="1",a="x"} 0\n'),
        ("histogram", 'a_bucket{le="+Inf"} 1 5\n'),
    ],
)
def test_what_can_be_is_written(kind: str, text: str) -> None:
    assert kept(kind, text)


def test_samples_that_belong_together_are_of_one_time() -> None:
    text = "a_total 1 5\na_created 1 6\n"

    assert write("counter", text) == ("a_total 1 5\n", {"invalid": 1})
    assert kept("counter", 'a_total 1 5\na_total{b="1"} 1 6\n')
    info = 'a_info{b="1"} 1 5\na_info{b="2"} 1\n'
    assert write("info", info) == ('a_info{b="1"} 1 5\n', {"invalid": 1})


def test_an_exemplar_stands_at_counters_and_buckets_alone_and_is_short() -> None:
    exemplar = ' # {b="1"} 1'

    assert kept("counter", f"a_total 1{exemplar}\n")
    assert kept("histogram", f'a_bucket{{le="+Inf"}} 1{exemplar}\n')
    assert write("gauge", f"a 1{exemplar}\n") == ("a 1\n", {})
    assert write("counter", f"a_created 1{exemplar}\n") == ("a_created 1\n", {})
    long = f'a_total 1 # {{b="{"x" * 128}"}} 1\n'
    assert write("counter", long) == ("a_total 1\n", {})


def test_what_is_held_of_one_family_is_bounded() -> None:
    buckets = "".join(f'a_bucket{{le="{bound}"}} {bound}\n' for bound in range(MEMBERS + 1))

    written, dropped = write("histogram", buckets)
    series = "".join(f'a{{b="{number}"}} 1\n' for number in range(SERIES + 1))
    many, limited = write("gauge", series, openmetrics=False)

    assert (written, dropped) == ("", {"invalid": MEMBERS + 1})
    assert many.count("\n") == SERIES
    assert limited == {"limit": 1}


def test_a_header_comes_with_the_first_sample_that_is_written() -> None:
    section = Section(Family(b"a", "counter", b"Help."), openmetrics=True)
    bad, good = (parse_sample(line, openmetrics=True) for line in (b"a_total -1", b"a_total 1"))
    assert bad
    assert good

    assert section.add(bad) == b""
    assert section.add(good) == b"# HELP a Help.\n# TYPE a counter\na_total 1\n"
