import pytest

from agent.status.merge.modern import Modern


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a 1\n", "a 1\n"),
        ("# TYPE a counter\na{} 1\n", "a{} 1\n"),
        ("# TYPE a_total counter\na_total 1\n", "# TYPE a counter\na_total 1\n"),
        (
            '# HELP a_total Say "a".\n# TYPE a_total counter\na_total 1\n',
            '# HELP a Say \\"a\\".\n# TYPE a counter\na_total 1\n',
        ),
        ("# TYPE a_total gauge\na_total 1\n", "# TYPE a_total gauge\na_total 1\n"),
        ("# TYPE a untyped\na 1\n", "a 1\n"),
        ("# HELP a\n# TYPE a gauge\na 1\n", "# TYPE a gauge\na 1\n"),
        # The name without suffix is taken, by a family of either kind.
        (
            "# TYPE a counter\na 1\n# TYPE a_total counter\na_total 1\n",
            "a 1\na_total 1\n",
        ),
        (
            "# TYPE a_created gauge\na_created 1\n# TYPE a_total counter\na_total 1\n",
            "# TYPE a_created gauge\na_created 1\na_total 1\n",
        ),
        # What has no samples is not there.
        ("# TYPE a gauge\n# TYPE b gauge\nb 1\n", "# TYPE b gauge\nb 1\n"),
        # What neither Envoy nor the agent writes.
        ("\n# A comment.\n\n a\t1 \r\n\n", "a\t1\n"),
        (" a 1\n", "a 1\n"),
        ("# TYPE a gauge\r\na 1\r\n", "# TYPE a gauge\na 1\n"),
    ],
)
def test_lines_between_samples_change_and_samples_do_not(text: str, expected: str) -> None:
    assert Modern().feed(text.encode()).decode() == expected


def test_a_family_may_come_in_several_pieces() -> None:
    modern = Modern()

    pieces = [
        modern.feed(piece)
        for piece in (
            b"# HELP a_total x\n",
            b"# TYPE a_total counter\n",
            b"a_total 1\n",
            b"a_total 2\n",
        )
    ]

    assert pieces == [b"", b"", b"# HELP a x\n# TYPE a counter\na_total 1\n", b"a_total 2\n"]


def test_a_part_of_a_line_is_passed_on() -> None:
    modern = Modern()

    assert modern.feed(b'a{b="x \r') == b'a{b="x \r'
    assert modern.feed(b"# TYPE a") == b""
