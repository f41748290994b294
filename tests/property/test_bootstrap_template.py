"""Whatever the template, it is filled in or refused in one line."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from bootstrap.errors import BootstrapError
from bootstrap.template.errors import TemplateError
from bootstrap.template.functions import FUNCTIONS
from bootstrap.template.lexer import tokens
from bootstrap.template.parser import parse
from bootstrap.template.render import render

DATA = {"a": "x", "n": 5, "f": 0.5, "on": True, "l": ["p", "q"], "m": {"k": {"v": 1}}, "z": ""}
#: Of templates, so that random ones get beyond their first error.
PIECES = st.sampled_from(
    [
        *("{{", "}}", "{{ ", " }}", "{{- ", " -}}", "{{/*", "*/}}", "\n", " ", "text", "{", "}"),
        *("if ", "else ", "end ", "range ", "with ", "define ", ":=", " = ", " | ", "(", ")", ","),
        *(".", ".a", ".n", ".f", ".l", ".m", ".k", ".v", ".z", ".none", "$", "$x", "nil", "true"),
        *('"s"', '"', "`r`", "`", "1", "-2", "0x1F", "1e3", "1_0", "'", "\\", "/", "é"),
        *(f"{name} " for name in FUNCTIONS),
    ]
)
VALUES = st.sampled_from(["$.a", ".n", ".l", ".m.k.v", ".", "$x", '"s"', "1", "(len .l)", "nil"])
CALLS = st.builds(
    lambda name, arguments: f"{name} {' '.join(arguments)}",
    st.sampled_from(sorted(FUNCTIONS)),
    st.lists(VALUES, max_size=3),
)
PIPELINES = st.lists(CALLS | VALUES, min_size=1, max_size=3).map(" | ".join)
#: Templates that are well-formed, if not always meaningful.
TEMPLATES = st.recursive(
    PIPELINES.map("{{{{ {} }}}}".format) | st.just("{{ $x := .l }}") | st.text("ab \n", max_size=3),
    lambda inner: (
        st.builds(
            "{{{{ {} {} }}}}{}{{{{- else -}}}}{}{{{{ end }}}}".format,
            st.sampled_from(["if", "with", "range", "range $x :=", "range $i, $x :="]),
            PIPELINES,
            inner,
            inner,
        )
        | st.lists(inner, max_size=3).map("".join)
    ),
    max_leaves=8,
)


@given(st.text() | st.lists(PIECES, max_size=20).map("".join))
@example("{{" + "(" * 2000)
@example("{{ if . }}" * 2000)
@example("{{ " + "9" * 5000 + " }}")
def test_any_text_is_read_or_refused(text: str) -> None:
    line, reason = trouble(text)

    assert 0 <= line <= text.count("\n") + 1
    assert "\n" not in reason


def trouble(text: str) -> tuple[int, str]:
    """Return line and reason of what is wrong with a template."""
    try:
        parse(text)
    except TemplateError as error:
        return error.line, error.reason
    return 0, ""


@given(TEMPLATES | st.lists(PIECES, max_size=20).map("".join))
def test_any_template_is_filled_in_or_refused(text: str) -> None:
    try:
        filled, _ = render(text, DATA, {}, path="t")
    except BootstrapError as error:
        problems = error.problems
    else:
        problems = (f"t:{len(filled)}",)

    (line,) = problems
    assert line.startswith("t:")
    assert "\n" not in line


@given(st.text())
def test_text_without_actions_stays_as_it_is(text: str) -> None:
    plain = text.replace("{{", "{ {")

    assert render(plain, {}, {}, path="t") == (plain, [])


@given(st.text(st.characters(exclude_characters="`\r")))
def test_what_is_written_raw_is_printed(text: str) -> None:
    assert render(f"{{{{ `{text}` }}}}", {}, {}, path="t")[0] == text


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists, max_leaves=5))
def test_json_of_a_value_reads_back(value: object) -> None:
    text, _ = render("{{ toJson .v }}", {"v": value}, {}, path="t")

    assert json.loads(text) == value


@given(st.text("ab{}-/* \n\t`.", max_size=30))
def test_tokens_hold_their_lines_in_order(text: str) -> None:
    try:
        lines = [token.line for token in tokens(text)]
    except TemplateError:
        return

    assert lines == sorted(lines)
