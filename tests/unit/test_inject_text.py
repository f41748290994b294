"""Source: status-lifecycle.md section 10.2."""

import json

from agent.inject.text import compact_json


def test_json_is_compact_and_keeps_its_order() -> None:
    assert compact_json({"b": 1, "a": [None, True]}) == '{"b":1,"a":[null,true]}'


def test_signs_are_escaped_as_in_go() -> None:
    assert compact_json("/x?a=1&b=<2>") == r'"/x?a=1\u0026b=\u003c2\u003e"'
    assert compact_json("\u2028\u2029") == r'"\u2028\u2029"'
    assert compact_json("é") == '"é"'


def test_what_is_no_character_is_replaced() -> None:
    written = compact_json("é\ud800")

    assert json.loads(written.encode()) == "é\ufffd"
