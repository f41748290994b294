from collections import Counter

from agent.status.merge.families import Family
from agent.status.merge.strict.reader import LINE_BYTES, Reader, Splitter


def read(text: str, *, openmetrics: bool) -> tuple[list[tuple[str, str]], int]:
    """Return families and lines of samples, and how many lines were dropped."""
    dropped: Counter[str] = Counter()
    reader = Reader(
        lambda reason: dropped.update([reason]),
        openmetrics=openmetrics,
        as_openmetrics=openmetrics,
    )
    found = [
        (shown(family), sample.line.decode())
        for family, sample in reader.read(text.encode("utf-8", "surrogateescape").split(b"\n"))
    ]
    return found, dropped["invalid"]


def shown(family: Family) -> str:
    parts = (family.name, family.kind.encode(), family.help, family.unit)
    return b" ".join(filter(None, parts)).decode()


def test_samples_belong_to_the_family_that_was_declared() -> None:
    text = """# HELP a Text.
# TYPE a histogram
# A comment.
a_bucket{le="+Inf"} 1
a_sum 1
a_count 1
a_other 1
a 2
# TYPE b gauge
b 1
# HELP c Only help.
c 1

 d\t1\r
"""
    found, dropped = read(text, openmetrics=False)

    assert found == [
        ("a histogram Text.", 'a_bucket{le="+Inf"} 1'),
        ("a histogram Text.", "a_sum 1"),
        ("a histogram Text.", "a_count 1"),
        ("a_other unknown", "a_other 1"),
        ("a unknown", "a 2"),
        ("b gauge", "b 1"),
        ("c unknown Only help.", "c 1"),
        ("d unknown", "d 1"),
    ]
    assert dropped == 0


def test_openmetrics_has_units_and_quoted_names() -> None:
    text = """# TYPE a_bytes counter
# UNIT a_bytes bytes
# HELP a_bytes Text.
a_bytes_total 1
# TYPE "b.c" gauge
{"b.c"} 1\r
# UNIT d seconds
d 1
# TYPE e info
# UNIT e e
e_info 1
# EOF
"""
    found, dropped = read(text, openmetrics=True)

    assert found == [
        ("a_bytes counter Text. bytes", "a_bytes_total 1"),
        ("b.c gauge", '{"b.c"} 1'),
        ("d unknown", "d 1"),
        ("e info", "e_info 1"),
    ]
    assert dropped == 0


def test_what_cannot_be_read_is_dropped() -> None:
    text = """# TYPE a gauge
# TYPE a counter
# TYPE b nonsense
b 1
# HELP b Too late.
what
c{d="\udcff"} 1
"""
    old = read(text, openmetrics=False)
    new = read(text.replace("# TYPE a g", "# Comment\n# TYPE a g"), openmetrics=True)

    assert old == ([("b unknown", "b 1")], 5)
    assert new == ([("b unknown", "b 1")], 6)


def test_lines_come_out_of_any_pieces() -> None:
    splitter = Splitter(lambda _: None)

    lines = [*splitter.feed(b"a"), *splitter.feed(b"b\n\nc"), *splitter.feed(b"\nd")]

    assert lines == [b"ab", b"", b"c"]
    assert splitter.end() == [b"d"]
    assert Splitter(lambda _: None).end() == []


def test_a_line_that_is_too_long_is_dropped_wherever_it_is_cut() -> None:
    dropped: list[str] = []
    splitter = Splitter(dropped.append)
    half = b"x" * LINE_BYTES

    lines = [*splitter.feed(b"a\n" + half + b"y"), *splitter.feed(half), *splitter.feed(b"z\nb\n")]

    assert lines == [b"a", b"b"]
    assert dropped == ["invalid"]
    assert splitter.end() == []
