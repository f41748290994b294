import pytest

from agent.status.merge.samples import (
    Sample,
    in_other_format,
    parse_sample,
    tidy,
    without_exemplar,
    without_tail,
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"a 1", (b"a", (), b"1", b"", b"")),
        (b"a{} 1", (b"a", (), b"1", b"", b"")),
        (b'a{b="c"} -1.5e+3 5', (b"a", (b'b="c',), b"-1.5e+3", b"5", b"")),
        (
            b'a{b="c",d="e, f=\\"g\\",h"} +Inf 1.5',
            (b"a", (b'b="c', b'd="e, f=\\"g\\",h'), b"+Inf", b"1.5", b""),
        ),
        (b'a{b=",c=",d="="} 1', (b"a", (b'b=",c=', b'd="='), b"1", b"", b"")),
        (b'a 1 # {b="c"} 2', (b"a", (), b"1", b"", b'{b="c"} 2')),
        (b"a .5 1 # {} 2 3.5", (b"a", (), b".5", b"1", b"{} 2 3.5")),
        (b'{"a.b"} NaN', (b"a.b", (), b"NaN", b"", b"")),
        (b'{"a",b="c","d.e"="f"} 1', (b"a", (b'b="c', b'"d.e"="f'), b"1", b"", b"")),
        (b'a{"b"="c"} 1', (b"a", (b'b="c',), b"1", b"", b"")),
    ],
)
def test_a_sample_is_read(
    line: bytes, expected: tuple[bytes, tuple[bytes, ...], bytes, bytes, bytes]
) -> None:
    assert parse_sample(line, openmetrics=True) == Sample(*expected, line)


@pytest.mark.parametrize(
    ("line", "tidied"),
    [
        (b"  a\t 1  ", b"a 1"),
        (b'a { b = "c d" , } 1 5', b'a{b="c d"} 1 5'),
        (b'a{b="c",}1', b'a{b="c"} 1'),
        (b'{ "a" } 1', b'{"a"} 1'),
        (b'a{b="c\\"  d"}  1', b'a{b="c\\"  d"} 1'),
    ],
)
def test_the_text_format_may_have_more_blanks(line: bytes, tidied: bytes) -> None:
    found = parse_sample(line, openmetrics=False)

    assert tidy(line) == tidied
    assert found
    assert found.line == tidied
    assert parse_sample(line, openmetrics=True) is None


@pytest.mark.parametrize(
    "line",
    [
        b"", b"a", b"1", b"a b", b"a 1 2 3", b"1a 1", b"a-b 1", b"a 1_000", b"a 0x1p3", b"a --1",
        b"a +NaN", b"a 1e", b"a 1 x", b"a 1 # 2", b"a 1 # {b=c} 2", b'a{b="c} 1', b'a{b="c"x} 1',
        b'a{b="\\x"} 1', b'a{b="c",b="d"} 1', b'a{b="c","b"="d"} 1', b'a{__b="c"} 1', b'{"a"',
        b'{b="c"} 1', b'a{"b"} 1', b'a{,b="c"} 1', b'a{b="c",,} 1', b"a " + b"9" * 500,
        b"a 1 " + b"9" * 20, b'{""} 1', b"a 1 -5", b'a{"x.y"="1","x.y"="2"} 1',
    ],
)  # fmt: skip
def test_what_is_no_sample_is_refused(line: bytes) -> None:
    assert parse_sample(line, openmetrics=True) is None
    assert parse_sample(line, openmetrics=False) is None


def test_a_quote_that_does_not_end_is_looked_for_once() -> None:
    """Each of these took six seconds, in which nobody else was answered."""
    line = b'a{b="' + b'\\"' * 30_000

    assert [parse_sample(line, openmetrics=False) for _ in range(50)] == [None] * 50


@pytest.mark.parametrize("line", [b"a 1 1.5", b"a 1 # {} 2"])
def test_what_only_openmetrics_has_is_refused_in_text(line: bytes) -> None:
    assert parse_sample(line, openmetrics=True)
    assert parse_sample(line, openmetrics=False) is None


@pytest.mark.parametrize(
    ("text", "openmetrics"),
    [
        (b"a 1", b"a 1"),
        (b"a 1 1500", b"a 1 1.500"),
        (b"a 1 5", b"a 1 0.005"),
    ],
)
def test_time_is_in_other_units(text: bytes, openmetrics: bytes) -> None:
    old, new = parse_sample(text, openmetrics=False), parse_sample(openmetrics, openmetrics=True)
    assert old
    assert new

    made_new = in_other_format(old, as_openmetrics=True)
    made_old = in_other_format(new, as_openmetrics=False)

    assert (made_new.line, made_new.timestamp) == (openmetrics, openmetrics[4:])
    assert int(made_old.timestamp or 0) == int(text[4:] or 0)


def test_exemplars_are_left_out() -> None:
    sample = parse_sample(b'a{b="c"} 1 1.25 # {d="e"} 2 3', openmetrics=True)
    assert sample

    assert in_other_format(sample, as_openmetrics=False).line == b'a{b="c"} 1 1250'
    assert without_exemplar(sample).line == b'a{b="c"} 1 1.25'
    assert without_tail(sample) == b'a{b="c"} 1'
    whole = parse_sample(b"a 1 7", openmetrics=True)
    assert whole
    assert in_other_format(whole, as_openmetrics=False).line == b"a 1 7000"


def test_a_quote_without_end_is_left_alone() -> None:
    assert tidy(b'a{b="c} 1') == b'a{b="c} 1'
