"""Streams and pushes as JSON has them."""

from agent.xds.discovery import Kind, Request, Response
from agent.xds.inventory import Change
from agent.xds.monitor.report import NAMES, Document, Stream, document, pushed
from agent.xds.resources import CLUSTER, LISTENER
from agent.xds.sync import Answer, Push, SyncTable

CONNECTION: Document = {"address": "istiod:15012"}
UNKNOWN = "type.googleapis.com/istio.security.Authorization"
EPOCH = 1000.0
SENT = {"version": "v1", "nonce": "a", "resources": 3, "bytes": 20}


def stream(table: SyncTable) -> Stream:
    return Stream(2, Kind.SOTW, "", 1001.23456, table)


def test_without_a_stream_there_are_no_types() -> None:
    assert document(CONNECTION, 1, None, EPOCH) == {
        "connection": {"address": "istiod:15012", "sessions": 1, "stream": None},
        "types": {},
    }


def test_times_are_unix_seconds_and_types_have_their_short_names() -> None:
    table = SyncTable()
    for type_url in (CLUSTER, LISTENER, UNKNOWN):
        table.requested(Request(type_url, "", "", None), 10, 1.0)
    table.responded(Response(CLUSTER, "v1", "a", 3), 20, 2.0)
    table.requested(Request(CLUSTER, "v1", "a", None), 30, 2.0125)
    table.responded(Response(LISTENER, "v1", "a", 3), 20, 3.0)
    table.requested(Request(LISTENER, "", "a", "bad"), 30, 3.5)

    found = document(CONNECTION, 2, stream(table), EPOCH)

    assert found["connection"]["stream"] == {
        "number": 2,
        "kind": "sotw",
        "node": None,
        "since": 1001.235,
        "requests": 5,
        "request_bytes": 90,
        "responses": 2,
        "response_bytes": 40,
    }
    assert found["types"]["cds"] == {
        "type_url": CLUSTER,
        "state": "SYNCED",
        "subscribed": 1001.0,
        "sent": {"time": 1002.0, **SENT},
        "answered": 1002.013,
        "milliseconds": 12.5,
        "acknowledged": {"time": 1002.0, **SENT},
        "last_nack": None,
    }
    refused = {"time": 1003.0, **SENT, "answered": 1003.5, "error": "bad"}
    assert found["types"]["lds"]["last_nack"] == refused
    assert found["types"]["lds"]["acknowledged"] is None
    assert found["types"][UNKNOWN]["sent"] is None
    assert found["types"][UNKNOWN]["state"] == "NOT SENT"


def push(change: Change | None = None) -> Push:
    return Push(CLUSTER, "v1", "a", 3, 20, 2.0, change)


def test_a_push_is_told_with_its_answer() -> None:
    ack, nack = Answer(push(), 2.5, None), Answer(push(), 2.5, "bad")

    told = [pushed(push(), answer, EPOCH) for answer in (ack, nack, None)]

    assert [each["result"] for each in told] == ["ACK", "NACK", "unanswered"]
    assert [each["milliseconds"] for each in told] == [500.0, 500.0, None]
    assert [each["error"] for each in told] == [None, "bad", None]
    assert told[0].items() >= {"type": "cds", "time": 1002.0, **SENT}.items()
    assert (told[0]["change"], told[0]["names"]) == (None, {})


def test_what_it_changes_is_counted_and_some_of_it_named() -> None:
    names = tuple(str(number) for number in range(NAMES + 1))

    told = pushed(push(Change(names, ("a",), ())), None, EPOCH)

    assert told["change"] == {"added": NAMES + 1, "changed": 1, "removed": 0, "unknown": 0}
    assert told["names"] == {"added": list(names[:NAMES]), "changed": ["a"]}
