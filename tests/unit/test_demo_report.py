"""The demo's table."""

from agent.demo.report import Line, closing, heading, opening, summary

SAME = Line("readiness", "200", "200", 12.4)
OTHER = Line("readiness", "200", "503", 12.4)


def test_a_line_stands_under_the_headings() -> None:
    line = opening(SAME.step, SAME.expected) + closing(SAME)

    assert line.index("200") == heading().index("expected")
    assert line.rindex("200") == heading().index("seen")
    assert line.endswith(" 12")
    assert len(line) == len(heading())


def test_a_difference_is_marked() -> None:
    assert closing(OTHER).endswith("12   <-- differs")


def test_the_summary_counts_differences() -> None:
    assert summary([SAME, OTHER, SAME], 9.87) == "1 of 3 steps differ, 9.9 s"
    assert summary([SAME], 9.87) == "all as expected, 9.9 s"
