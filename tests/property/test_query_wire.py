"""Whatever a control plane sends, it is shown or refused."""

import json
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from agent.protobuf.wire import WireError, message
from agent.query.render import render
from agent.query.wire import decode
from agent.xds.discovery import Resource
from agent.xds.resources import CLUSTER, NAME_TABLE, SECRET

KEY = "-----BEGIN PRIVATE KEY-----"

fields = st.tuples(
    st.integers(1, 40), st.one_of(st.integers(0, 2**64 - 1), st.text(), st.binary(max_size=40))
)
messages = st.recursive(
    st.lists(fields, max_size=4).map(lambda content: message(*content)),
    lambda inner: st.lists(st.tuples(st.integers(1, 40), inner), max_size=4).map(
        lambda content: message(*content)
    ),
    max_leaves=10,
)
anything = st.one_of(messages, st.binary(max_size=60))


@given(anything)
def test_the_decoder_raises_nothing_but_its_own_error(raw: bytes) -> None:
    with suppress(WireError):
        json.dumps(decode(raw))


@given(st.sampled_from([CLUSTER, SECRET, NAME_TABLE, "a.b/C", "istio.io/debug"]), anything)
def test_a_resource_is_shown_or_refused(type_url: str, body: bytes) -> None:
    with suppress(WireError):
        assert render(Resource(type_url, "", "", body))["@type"] == type_url


@given(
    st.sampled_from([CLUSTER, "a.b/C", "istio.io/debug"]),
    st.binary(max_size=10),
    st.binary(max_size=10),
    st.lists(st.integers(1, 100), max_size=5),
)
def test_a_private_key_is_never_shown(
    type_url: str, before: bytes, after: bytes, path: list[int]
) -> None:
    raw = before + KEY.encode() + after
    for number in path:
        raw = message((number, raw))

    with suppress(WireError):
        shown = json.dumps(render(Resource(type_url, "", "", raw)))
        assert KEY not in shown
        assert "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t"[:24] not in shown
