"""The text of resource files: what is taken from it, and that whatever is wrong has its place."""

import pytest

from agent.xds.local.parse import MAX_VALUES, Entry, FileError, describe, entries

TYPED = '"@type": t\n'


def read(text: str, name: str = "a.yaml") -> list[Entry]:
    return list(entries(name, text.encode()))


def refusal(text: str, name: str = "a.yaml") -> str:
    with pytest.raises(FileError) as caught:
        read(text, name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def doublings(count: int, *, resources: int = 1) -> str:
    """Return lists of which each has the one before twice, and resources that have the last."""
    lists = ["a0: &a0 [x, x]"]
    lists += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, count)]
    items = [f'- {{"@type": t, list: *a{count - 1}}}'] * resources
    return "\n".join((*lists, "resources:", *items))


def test_resources_are_found_with_their_lines() -> None:
    text = f"{TYPED}---\n\n{TYPED}---\nresources:\n- {TYPED}- [1]\n--- []\n---\n"

    assert read(text) == [
        Entry(1, {"@type": "t"}),
        Entry(4, {"@type": "t"}),
        Entry(7, {"@type": "t"}),
        Entry(8, [1]),
    ]


def test_json_has_one_line() -> None:
    assert read('\n[{"@type": "t"}, 2]', "a.json") == [Entry(1, {"@type": "t"}), Entry(1, 2)]
    assert read('{"resources": [3]}', "a.json") == [Entry(1, 3)]
    assert read("", "a.json") == []


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(FileError, match=r"^a\.yaml:1: is not UTF-8"):
        list(entries("a.yaml", b"\xff"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\n\nx: [", "a.yaml:3: is not YAML: "),
        ("\x07", "a.yaml:1: is not YAML: unacceptable character"),
        (f"{TYPED}---\n{'[' * 20000}", "a.yaml:3: is nested too deeply"),
        (f"{TYPED}---\n{'{a: ' * 20000}", "a.yaml:3: is nested too deeply"),
        (f"{TYPED}---\n- &x [*x]", "a.yaml:3: an alias stands for what it is in"),
        (f"{TYPED}---\n? &x [*x]\n: 1", "a.yaml:3: an alias stands for what it is in"),
        (f"{TYPED}---\nb: &x {{c: *x}}", "a.yaml:3: an alias stands for what it is in"),
        (f"{TYPED}---\na: 2001-13-99", "a.yaml:3: month must be in 1..12"),
        (f"{TYPED}---\na: !!bool x", "a.yaml:3: KeyError 'x'"),
        (f"{TYPED}---\na: !!timestamp x", "a.yaml:3: AttributeError 'NoneType'"),
        (f"{TYPED}---\na: !!int ''", "a.yaml:3: IndexError"),
        (f"{TYPED}---\na: !!python/name:os.system x", "a.yaml:3: is not YAML: could not determine"),
    ],
)
def test_what_yaml_cannot_be(text: str, reason: str) -> None:
    assert refusal(text).startswith(reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{\n"a": }', "a.json:2: is not JSON: Expecting value"),
        ("[" * 100_000, "a.json:1: is not JSON: is nested too deeply"),
        ("1" * 5000, "a.json:1: is not JSON: Exceeds the limit"),
    ],
)
def test_what_json_cannot_be(text: str, reason: str) -> None:
    assert refusal(text, "a.json").startswith(reason)


def test_aliases_are_good_for_so_many_values_and_no_more() -> None:
    few, many = (MAX_VALUES // 4).bit_length(), MAX_VALUES.bit_length() + 40

    assert len(read(doublings(few))) == 1
    assert refusal(doublings(many)) == (
        f"a.yaml:{many + 2}: holds more than {MAX_VALUES} values, aliases written out"
    )


def test_the_values_of_all_resources_of_a_file_count() -> None:
    count = (MAX_VALUES // 4).bit_length()

    assert refusal(doublings(count, resources=4)).startswith(f"a.yaml:{count + 3}: holds more than")


def test_a_merge_counts_as_what_is_merged() -> None:
    merges = ["a0: &a0 {k: v}"]
    merges += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60)]
    text = "\n".join((*merges, 'resources: [{"@type": t, x: *a59}]'))

    assert "holds more than" in refusal(text)


def test_a_long_chain_of_aliases_is_deep() -> None:
    lists = ["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 3000))]

    text = "\n".join((*lists, 'resources: [{"@type": t, x: *a2999}]'))

    assert refusal(text) == "a.yaml:3001: is nested too deeply"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("two\n  lines"), "two lines"),
        (ValueError(), "ValueError"),
        (KeyError("x"), "KeyError 'x'"),
        (RecursionError("maximum"), "is nested too deeply"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_an_error_is_described_in_one_line(error: Exception, text: str) -> None:
    assert describe(error) == text
