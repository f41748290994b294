"""Templates filled in. What Go's text/template makes of the same text is written beside each."""

import pytest

from bootstrap.errors import BootstrapError
from bootstrap.template.render import render
from bootstrap.template.values import Struct, TextMap

DATA = {
    "a": "x",
    "n": 5,
    "zero": 0,
    "on": True,
    "empty": "",
    "names": ["p", "q"],
    "none": [],
    "map": {"k": "v", "inner": {"c": "d"}},
    "labels": TextMap({"app": "web"}),
    "config": Struct("ProxyConfig", {"statusport": 15020}, {"statusPort": 15020}),
}


def filled(text: str) -> str:
    return render(text, DATA, {"HOME": "/"}, path="t.tmpl")[0]


def problem(text: str) -> str:
    with pytest.raises(BootstrapError) as caught:
        filled(text)
    (line,) = caught.value.problems
    return line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain { text }", "plain { text }"),
        ("{{ .a }}{{.n}}{{ .on }}", "x5true"),
        ("{{ .missing }} {{ .missing.field }}", "<no value> <no value>"),
        ("{{ .map.inner.c }}{{ $.map.k }}{{ (.map).k }}", "dvv"),
        ("{{ .config.StatusPort }}", "15020"),
        ("x  {{- .a -}}  y", "xxy"),
        ("x\n  {{- /* nothing */ -}}\n  y", "xy"),
        ("x {{/* two\nlines */}} y", "x  y"),
        ("{{ if .a }}1{{ end }}{{ if .empty }}2{{ end }}", "1"),
        ("{{ if .empty }}1{{ else if .n }}2{{ else }}3{{ end }}", "2"),
        ("{{ if .empty }}1{{ else if .zero }}2{{ else }}3{{ end }}", "3"),
        ("{{ if .config }}1{{ end }}", "1"),
        ("{{ with .map }}{{ .k }}{{ $.a }}{{ end }}", "vx"),
        ("{{ with .empty }}1{{ else }}2{{ end }}", "2"),
        ("{{ with .empty }}1{{ else with .n }}{{ . }}{{ end }}", "5"),
        ("{{ with $x := .map }}{{ $x.k }}{{ end }}", "v"),
        ("{{ range .names }}[{{ . }}]{{ end }}", "[p][q]"),
        ("{{ range $e := .names }}{{ $e }}{{ $.n }}{{ end }}", "p5q5"),
        ("{{ range $i, $e := .names }}{{ if $i }},{{ end }}{{ $e }}{{ end }}", "p,q"),
        ("{{ range $k, $v := .labels }}{{ $k }}={{ $v }}{{ end }}", "app=web"),
        ("{{ range .none }}1{{ else }}2{{ end }}", "2"),
        ("{{ range .missing }}1{{ else }}2{{ end }}", "2"),
        ("{{ $x := 1 }}{{ if .on }}{{ $x = 2 }}{{ end }}{{ $x }}", "2"),
        ("{{ $x := 1 }}{{ if .on }}{{ $x := 2 }}{{ end }}{{ $x }}", "1"),
        ("{{ $x := .names }}{{ range $x }}{{ . }}{{ end }}", "pq"),
        ("{{ and .a .n }}{{ or .empty .a }}{{ and .empty 1 }}", "5x"),
        ("{{ .a | or .empty }}{{ .empty | and .a }}", "x"),
        ("{{ .names | len | printf `%02d` }}", "02"),
        ("{{ print (len .names) (index .names 1) }}", "2q"),
        ('{{ eq .a "y" "x" }}{{ not (eq .a "y") }}', "truetrue"),
        ("{{ print nil coalesce }}", "<nil> <nil>"),
        ('{{ env "HOME" }}{{ env "OTHER" }}', "/"),
    ],
)
def test_a_template_is_filled_in_as_go_does(text: str, expected: str) -> None:
    assert filled(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\n{{ .a.b }}", "t.tmpl:2: field b of text: expected a map or a struct"),
        ("{{ .config.Nope }}", "t.tmpl:1: ProxyConfig has no field Nope"),
        ("{{ $x }}", "t.tmpl:1: variable $x is not defined here"),
        ("{{ $x = 1 }}", "t.tmpl:1: variable $x is not defined here"),
        ("{{ if .a }}{{ $x := 1 }}{{ end }}{{ $x }}", "t.tmpl:1: variable $x is not defined here"),
        ("{{ range .a }}{{ end }}", "t.tmpl:1: range over text: expected a list or a map"),
        ("{{ or }}", "t.tmpl:1: function or: expected arguments"),
        ("{{ index .names 2 }}", "t.tmpl:1: function index: index 2 of 2: out of range"),
        (
            "{{ not }}",
            "t.tmpl:1: function not: missing 1 required positional argument: 'value'",
        ),
        ("{{ end }}", "t.tmpl:1: {{ end }}: expected an if, with or range before"),
    ],
)
def test_trouble_is_one_line_with_its_place(text: str, expected: str) -> None:
    assert problem(text) == expected


def test_an_unknown_function_comes_with_those_that_are_known() -> None:
    line = problem("{{ sha256sum .a }}")

    assert line.startswith("t.tmpl:1: function sha256sum is not supported; supported: add, and, ")
    assert "toJSON" in line


def test_a_parameter_that_is_printed_without_a_value_is_a_warning() -> None:
    text, warnings = render(
        "{{ .a }}\n{{ .typo }}{{ with .map }}{{ .none }}{{ end }}", DATA, {}, path="t"
    )

    assert text == "x\n<no value><no value>"
    assert warnings == ["t:2: .typo has no value in this pod"]
