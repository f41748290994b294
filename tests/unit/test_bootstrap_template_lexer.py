"""Tokens of a template: kinds, places, and what white space goes."""

import pytest

from bootstrap.template.errors import TemplateError
from bootstrap.template.lexer import Token, tokens


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in tokens(text)]


def constant(text: str) -> object:
    return next(token.value for token in tokens(f"{{{{ {text} }}}}") if token.kind == "constant")


def problem(text: str) -> str:
    with pytest.raises(TemplateError) as caught:
        list(tokens(text))
    return str(caught.value)


def test_text_and_actions_take_turns() -> None:
    assert kinds("a{{.b}}c") == [
        ("text", "a"),
        ("open", "{{"),
        ("field", "b"),
        ("close", "}}"),
        ("text", "c"),
        ("end", ""),
    ]


def test_an_action_holds_words_fields_variables_constants_and_signs() -> None:
    assert kinds('{{$x,$:=f .a.b|(g 1 "}}").c}}')[1:-2] == [
        ("variable", "x"),
        ("sign", ","),
        ("variable", ""),
        ("sign", ":="),
        ("word", "f"),
        ("field", "a"),
        ("field", "b"),
        ("sign", "|"),
        ("sign", "("),
        ("word", "g"),
        ("constant", "1"),
        ("constant", '"}}"'),
        ("sign", ")"),
        ("field", "c"),
    ]


def test_white_space_before_a_token_is_noted() -> None:
    assert [token.spaced for token in tokens("{{ .a.b .c }}") if token.kind == "field"] == [
        True,
        False,
        True,
    ]


def test_lines_are_counted_in_text_actions_comments_and_raw_text() -> None:
    text = "\n{{\n.a}}\n{{/*\n*/}}{{`\n`\n.b}}{{.c}}"

    assert [token for token in tokens(text) if token.kind == "field"] == [
        Token("field", "a", 3, spaced=True),
        Token("field", "b", 7, spaced=True),
        Token("field", "c", 7),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a \n {{- .b -}} \n c", ["a", "c"]),
        ("a {{- /* b */ -}} c", ["a", "c"]),
        ("a {{/* b */}} c", ["a ", " c"]),
        ("a {{-3}} c", ["a ", " c"]),
        (" {{- .b }}{{ .c -}} ", []),
        ("a {{/* }} */}} c", ["a ", " c"]),
    ],
)
def test_markers_take_white_space_away(text: str, expected: list[str]) -> None:
    assert [token.text for token in tokens(text) if token.kind == "text"] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("false", False),
        ("12", 12),
        ("-3", -3),
        ("+3", 3),
        ("0x1F", 31),
        ("1_000", 1000),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-2e-3", -0.002),
        (r'"a\t\"\u00e9\x41"', 'a\t"éA'),
        (r"`a\t}}`", r"a\t}}"),
        ("`a\r\nb`", "a\nb"),
    ],
)
def test_a_constant_is_what_go_reads(text: str, expected: object) -> None:
    value = constant(text)

    assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n{{ .a", "2: an action is not closed: expected }}"),
        ("{{ .a }", "1: an action is not closed: expected }}"),
        ("{{ 010 }}", "1: 010: expected a number"),
        ("{{ 1x }}", "1: 1x: expected a number"),
        (r'{{ "\q" }}', r"""1: "\q": expected an escape sequence, found '\q'"""),
        (
            "{{\n 'a' }}",
            """2: unreadable in an action: "'a'"; expected a value, a function, '|' or '}}'""",
        ),
        (
            '{{ "a }}',
            """1: unreadable in an action: '"a'; expected a value, a function, '|' or '}}'""",
        ),
        (
            "{{ .a-}}",
            "1: unreadable in an action: '-'; expected a value, a function, '|' or '}}'",
        ),
    ],
)
def test_what_is_no_token_is_named_with_its_line(text: str, expected: str) -> None:
    assert problem(text) == expected
