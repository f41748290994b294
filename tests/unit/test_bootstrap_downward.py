import pytest

from bootstrap.downward import parse_downward, unquote


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ('app="hello"\ntier="backend"', {"app": "hello", "tier": "backend"}),
        ('app="hello"\r\n', {"app": "hello"}),
        ('a="line one\\nline two"\n', {"a": "line one\nline two"}),
        ('a="x=y=z"\n', {"a": "x=y=z"}),
        ('no equals sign\na="b"\n', {"a": "b"}),
        ('a=""\n', {"a": ""}),
        ('a="\u2028"\n', {"a": "\u2028"}),
    ],
)
def test_pairs_are_read(text: str, pairs: dict[str, str]) -> None:
    assert parse_downward(text) == (pairs, [])


def test_a_bad_line_costs_only_itself() -> None:
    """Defect 46 of bootstrap.md section 8."""
    pairs, warnings = parse_downward('a="1"\nb=2\nc="3"\n', name="labels")

    assert pairs == {"a": "1", "c": "3"}
    assert warnings == [
        "labels line 2, key 'b': expected a value in double quotes; the line is ignored"
    ]


@pytest.mark.parametrize(
    ("quoted", "text"),
    [
        (r'"\a\b\f\n\r\t\v\\\""', '\a\b\f\n\r\t\v\\"'),
        (r'"\x41\u00e9\U0001F600"', "Aé😀"),
        (r'"\101\061"', "A1"),
        (r'"\xc3\xa9"', "é"),
        (r'"\303\251!"', "é!"),
        (r'"\xff"', "\ufffd"),
        (r'"\\n\v\\"', "\\n\v\\"),
        (r'"a\\\\v"', "a\\\\v"),
        ('"\t\\v"', "\t\v"),
    ],
)
def test_goes_escapes_resolve(quoted: str, text: str) -> None:
    assert unquote(quoted) == text


@pytest.mark.parametrize(
    "quoted",
    ["", '"', "x", "'x'", '"a', 'a"', '"a"b"', r'"\v"a"', r'"\q"', r'"\/"', r'"\x4"', r'"\xgg"',
     r'"\18"', r'"\400"', r'"\ud83d"', r'"\uD83D"', r'"\UFFFFFFFF"', r'"\U00110000"',
     '"\\"', r'"\v\"', r'"\v\\\"'],
)  # fmt: skip
def test_other_text_is_no_go_literal(quoted: str) -> None:
    with pytest.raises(ValueError, match=r"^expected a"):
        unquote(quoted)
