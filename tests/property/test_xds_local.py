"""Whatever a resource file holds, it is taken or it is what is named."""

import re

from hypothesis import given
from hypothesis import strategies as st

from agent.xds.local.convert import convert
from agent.xds.local.parse import FileError
from agent.xds.resources import CLUSTER

TOKEN = st.sampled_from(
    [
        "a", "name: x", '"@type": ', CLUSTER, "x/y.Z", "this.Foo", ": ", "- ", "? ", "\n", "\n  ",
        "[", "]", "{", "}", ",", "&x ", "*x", "<<: ", "!!bool ", "!!timestamp ", "!!set ",
        "!!omap ",
        "!!binary ", "!!int ", "!x ", "| ", "---\n", "...\n", "%YAML 9\n", "#", "'", '"', "\\ud800",
        "2001-13-99", "0b", "0o9", ".nan", "~", "1e999", "9" * 30, "\x07", "resources: ", "=", "\t",
        "metadata: ", "filter_metadata: ", "typed_filter_metadata: ", "load_assignment: ",
    ]
)  # fmt: skip
TEXT = st.lists(st.one_of(TOKEN, st.text(max_size=4)), max_size=30).map("".join)
SCALAR = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just(CLUSTER)
)
KEY = st.sampled_from(
    ["@type", "name", "metadata", "filter_metadata", "typed_filter_metadata", "value", "resources",
     "load_assignment", "endpoints", "connect_timeout", "typed_extension_protocol_options"]
)  # fmt: skip
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(KEY, SCALAR), inner, max_size=4)
    ),
    max_leaves=12,
)


def problem(name: str, content: bytes) -> str:
    try:
        convert({name: content})
    except FileError as error:
        return str(error)
    return ""


def check(name: str, content: bytes) -> None:
    assert re.fullmatch(rf"({re.escape(name)}:\d+: \S.*)?", problem(name, content))


@given(st.sampled_from(["a.yaml", "a.json"]), TEXT)
def test_any_text(name: str, text: str) -> None:
    check(name, text.encode(errors="surrogatepass"))
    check(name, f'"@type": {CLUSTER}\nname: x\n{text}'.encode(errors="surrogatepass"))


@given(st.sampled_from(["a.yaml", "a.json"]), st.binary(max_size=50))
def test_any_bytes(name: str, content: bytes) -> None:
    check(name, content)


@given(VALUE)
def test_any_value_in_a_resource(value: object) -> None:
    """Written by Python's repr, which is YAML for what JSON has, and nearly so for the rest."""
    for field in ("metadata", "load_assignment", "typed_extension_protocol_options", "name"):
        check("a.yaml", f'{{"@type": "{CLUSTER}", name: x, {field}: {value!r}}}'.encode())


def test_it_may_be_taken() -> None:
    assert not problem("a.yaml", f'"@type": {CLUSTER}\nname: x\n'.encode())
