"""The tree of a template."""

import pytest

from bootstrap.template.errors import TemplateError
from bootstrap.template.parser import (
    DEEPEST,
    SUPPORTED,
    Block,
    Chain,
    Constant,
    Function,
    Pipeline,
    parse,
)

DOT_A = Chain(None, ("a",))


def pipeline(*commands: object, line: int = 1, **members: object) -> Pipeline:
    return Pipeline(line, commands, **members)  # type: ignore[arg-type] # tuples of operands


def problem(text: str) -> str:
    with pytest.raises(TemplateError) as caught:
        parse(text)
    return str(caught.value)


def test_text_and_values_stand_in_order() -> None:
    assert parse("x{{ .a }}y") == ("x", pipeline((DOT_A,)), "y")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".", Chain(None, ())),
        (".a.b", Chain(None, ("a", "b"))),
        ("$", Chain("$", ())),
        ("$x.a", Chain("$x", ("a",))),
        ("nil", Constant(None)),
        ("1", Constant(1)),
        ("f", Function("f")),
        ("(f).a", Chain(pipeline((Function("f"),)), ("a",))),
    ],
)
def test_an_operand_is_a_chain_a_constant_or_a_function(text: str, expected: object) -> None:
    assert parse(f"{{{{ {text} }}}}") == (pipeline((expected,)),)


def test_commands_are_piped_and_only_functions_take_arguments() -> None:
    assert parse("{{ f .a 1 | g }}") == (
        pipeline((Function("f"), DOT_A, Constant(1)), (Function("g"),)),
    )


@pytest.mark.parametrize(
    ("text", "variables", "declares"),
    [("$x := .a", ("x",), True), ("$x = .a", ("x",), False)],
)
def test_an_action_may_set_a_variable(text: str, variables: object, *, declares: bool) -> None:
    assert parse(f"{{{{ {text} }}}}") == (
        pipeline((DOT_A,), variables=variables, declares=declares),
    )


def test_a_variable_alone_is_printed() -> None:
    assert parse("{{ $x | f }}") == (pipeline((Chain("$x", ()),), (Function("f"),)),)


def test_blocks_hold_nodes_and_what_is_otherwise() -> None:
    assert parse("{{ if .a }}1{{ else }}2{{ end }}3") == (
        Block("if", pipeline((DOT_A,)), ("1",), ("2",)),
        "3",
    )


def test_else_if_is_a_block_in_the_other_branch() -> None:
    inner = Block("if", pipeline((Chain("$", ()),)), ("2",), ("3",))

    assert parse("{{ if .a }}1{{ else if $ }}2{{ else }}3{{ end }}4") == (
        Block("if", pipeline((DOT_A,)), ("1",), (inner,)),
        "4",
    )


def test_a_range_may_name_index_and_element() -> None:
    named = pipeline((DOT_A,), variables=("i", "e"))

    assert parse("{{ range $i, $e := .a }}{{ end }}") == (Block("range", named, ()),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ }}", "1: nothing after '{{': expected a value"),
        ("{{ if }}{{ end }}", "1: nothing after 'if': expected a value"),
        ("{{ .a | }}", "1: nothing after '|': expected a value"),
        ("{{ () }}", "1: nothing after '(': expected a value"),
        ("{{ .a | .b }}", "1: expected a function after '|'"),
        ("{{ .a .b }}", "1: only a function takes arguments"),
        ("{{ f(.a) }}", "1: unexpected '(': expected white space between values"),
        ("{{ (.a }}", "1: unexpected '}}': expected ')'"),
        ("{{ .a ) }}", "1: unexpected ')': expected }} after the value"),
        ("{{ , }}", "1: unexpected ',': expected a value or a function"),
        ("{{ $x, $y := .a }}", "1: unexpected ',': expected white space between values"),
        ("{{ range $x, .a }}{{ end }}", "1: expected a variable after ','"),
        ("{{ range $x, $y .a }}{{ end }}", "1: expected ':=' or '=' after the variables"),
        ("\n{{ if .a }}", "2: {{ if }} has no {{ end }}"),
        ("{{ if .a }}{{ else }}", "1: {{ if }} has no {{ end }}"),
        ("{{ else }}", "1: {{ else }}: expected an if, with or range before"),
        ("{{ if .a }}{{ else }}{{ else }}{{ end }}", "1: a second {{ else }} in {{ if }}"),
        ("{{ if .a }}{{ else with .b }}{{ end }}", "1: unexpected 'with': expected }} after else"),
        ("{{ if .a }}{{ end .a }}", "1: unexpected 'a': expected }} after end"),
        (
            '{{ template "x" }}',
            f"1: {{{{ template }}}} is not supported; supported: {SUPPORTED}",
        ),
    ],
)
def test_trouble_is_named_with_its_line(text: str, expected: str) -> None:
    assert problem(text) == expected


@pytest.mark.parametrize("text", ["{{" + "(" * 1000 + "}}", "{{ if .a }}" * 1000])
def test_depth_is_limited(text: str) -> None:
    assert problem(text).endswith(f"nested more than {DEEPEST} deep")
