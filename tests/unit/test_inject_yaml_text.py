"""Source: status-lifecycle.md section 11.14."""

import pytest

from agent.inject.yaml_text import Text, dump, parse, split


def data(text: str) -> object:
    return parse(Text(text, 0))


def test_a_text_is_split_at_its_separators() -> None:
    text = "# first\na: 1\n---\n---  # second\nb: '---'\n--- {c: 3}\n---\n\n"

    assert split(text) == [
        Text("# first\na: 1\n", 0),
        Text("b: '---'\n", 4),
        Text("{c: 3}\n", 5),
    ]


def test_dashes_elsewhere_are_no_separators() -> None:
    text = "a: |\n  ---\n  x\n----: 1\n"

    assert split(text) == [Text(text, 0)]


def test_a_mark_of_byte_order_is_none_of_the_text() -> None:
    assert split("\ufeffa: 1") == [Text("a: 1", 0)]
    assert split("\n# \n") == [Text("\n# \n", 0)]
    assert split(" \n---\n") == []


def test_types_are_guessed_as_gos_library_does() -> None:
    assert data("{a: 22:22, b: 2020-01-01, c: 0644, d: 1.5, e: 0x10, f: yes, g: 1_000}") == {
        "a": "22:22",
        "b": "2020-01-01",
        "c": 0o644,
        "d": 1.5,
        "e": 16,
        "f": True,
        "g": 1000,
    }
    assert data("[0o444, -0O17, 0B11, 0X1f, 089, 1e3, 1.5e3, +12e3, -010, .5]") == [
        *(0o444, -0o17, 3, 31),
        *(89.0, 1e3, 1.5e3, 12e3),
        *(-8, 0.5),
    ]
    assert data("[0o8, 0x, y, N, 1e, 1-2]") == ["0o8", "0x", "y", "N", "1e", "1-2"]
    assert data("[=, 1:2:3.5, -, ~]") == ["=", "1:2:3.5", "-", None]


def test_keys_are_text() -> None:
    assert data("{3: a, true: b, null: c, x: [{2: d}]}") == {
        "3": "a",
        "true": "b",
        "null": "c",
        "x": [{"2": "d"}],
    }


def test_json_may_be_indented_by_tabs() -> None:
    assert data('{\n\t"a": [1, 22]\n}') == {"a": [1, 22]}
    assert data("{a: 1}") == {"a": 1}


def test_aliases_are_written_out() -> None:
    assert data("{a: &x [1], b: *x}") == {"a": [1], "b": [1]}
    assert "&" not in dump(data("{a: &x [1], b: *x}"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb:\n\tc: 1", "line 12, column 1: found character that cannot start any token; "),
        ("a: [", "line 11, column 1: did not find expected node content"),
        ("a: !!python/name:os.system x", "line 10, column 4: could not determine a constructor"),
        ("a: &x [*x]", "the document in line 10: expected at most 500000 values"),
        ("a: !!int x", "the document in line 10: expected YAML: ValueError"),
        ("[" * 5000, "line 10, column 1001: exceeded maximum nesting depth"),
        ("a: \0", "the document in line 10: expected YAML: "),
        ("{a: 1, [b]: 2}", "line 10, column 8: found unhashable key"),
    ],
)
def test_trouble_is_named_with_its_line_in_the_file(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="line 1") as caught:
        parse(Text(text, 9))

    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("depth", [200, 400, 900])
def test_depth_is_read_or_refused(depth: int) -> None:
    try:
        found = data("[" * depth + "]" * depth)
    except ValueError as error:
        assert "the document in line 1" in str(error)  # noqa: PT017 - either will do
    else:
        assert isinstance(found, list)


def test_aliases_do_not_explode() -> None:
    levels = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))

    with pytest.raises(ValueError, match="its aliases stand for more"):
        data(f"a0: &a0 x\n{levels}")


def test_text_that_could_be_something_else_is_quoted() -> None:
    document = {"b": "true", "a": ["1", "", "x", "*", "1:2"], "c": "two\nlines\n", "é": "é"}

    text = dump(document)

    assert text == (
        'a:\n- "1"\n- ""\n- x\n- \'*\'\n- "1:2"\nb: "true"\nc: |\n  two\n  lines\né: é\n'
    )
    assert data(text) == document


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1234e56",
            "089",
            "0o17",
            "0O17",
            "0B11",
            "0X1F",
            "1.5e3",
            "+12e3",
            ".1e3",
            "5.",
            "1_000",
        ),
        *("y", "Y", "n", "N", "yes", "Off", "null", "~", ".inf", "2020-01-01", "1:30", "<<", "="),
    ],
)
def test_text_that_go_takes_for_something_else_is_quoted(text: str) -> None:
    """A commit's short hash is often a number."""
    assert dump({text: text}) == f'"{text}": "{text}"\n'


def test_halves_of_characters_are_replaced_as_in_go() -> None:
    assert data('{"a\\ud800": ["x\\udfff"]}') == {"a\ufffd": ["x\ufffd"]}


def test_only_line_feeds_end_lines() -> None:
    text = "# \u2028--- x\u0085---\na: 1\r\n"

    assert split(f"{text}---\r\nb: 1\r\n") == [Text(text, 0), Text("b: 1\r\n", 3)]


def test_long_lines_are_not_broken() -> None:
    assert dump({"a": "x y " * 100}).count("\n") == 1
