"""What the agent says of Envoy's stream, in words."""

from agent.query.report import header, push, status
from agent.xds.discovery import Kind, Request, Response
from agent.xds.inventory import Change
from agent.xds.monitor.report import Document, Stream, document, pushed
from agent.xds.resources import CLUSTER, LISTENER, ROUTE
from agent.xds.sync import Answer, Push, SyncTable

NODE = "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local"
#: When the monotonic clock began: 2026-11-29 18:00:00 UTC.
EPOCH = 1795975200.0
TIME = "2026-11-29T18:00:0"


CONNECTED: Document = {
    "address": "istiod:15012",
    "state": "connected",
    "problem": None,
    "last_error": None,
}


def stream() -> Stream:
    table = SyncTable()
    for type_url in (CLUSTER, LISTENER, ROUTE):
        table.requested(Request(type_url, "", "", None), 100, 1.0)
    table.responded(Response(CLUSTER, "v1", "a", 31), 48213, 2.0)
    table.requested(Request(CLUSTER, "v1", "a", None), 50, 2.0123)
    table.responded(Response(LISTENER, "v1", "b", 4), 1000, 3.0)
    table.requested(Request(LISTENER, "", "b", "no such\n  cluster"), 50, 3.5)
    return Stream(3, Kind.DELTA, NODE, EPOCH, table)


def test_the_state_of_each_type_is_a_line_and_what_was_refused_says_why() -> None:
    text = status(document(CONNECTED, 3, stream(), EPOCH), EPOCH + 65)

    assert text.splitlines() == [
        "control plane  istiod:15012, connected",
        f"node           {NODE}",
        "stream         number 3, delta, since 2026-11-29T18:00:00.000Z (1m 5s ago)",
        "requests       5, 400 bytes",
        "responses      2, 49213 bytes",
        "",
        "type  state     version                  resources     bytes       ms  pushed",
        f"cds   SYNCED    v1                              31     48213     12.3  {TIME}2.000Z",
        f"lds   STALE     v1                               4      1000    500.0  {TIME}3.000Z",
        "      refused v1: no such cluster",
        "rds   NOT SENT  -                                -         -        -  -",
    ]


def test_without_a_stream_there_is_little_to_say() -> None:
    lost = {
        "address": "istiod:15012",
        "state": "disconnected",
        "problem": "control plane istiod:15012: down",
        "last_error": {"reason": "UNAVAILABLE: down", "time": EPOCH + 1},
    }
    found = document(lost, 2, None, EPOCH)

    assert status(found, EPOCH).splitlines() == [
        "control plane  istiod:15012, disconnected",
        "problem        control plane istiod:15012: down",
        f"last error     {TIME}1.000Z UNAVAILABLE: down",
        "stream         none now; there were 2",
    ]


def test_a_stream_that_just_began_has_no_node() -> None:
    found = document(CONNECTED, 1, Stream(1, Kind.SOTW, "", EPOCH, SyncTable()), EPOCH)

    assert "node           not said yet" in status(found, EPOCH)


def told(change: Change | None, answer: tuple[float, str | None] | None) -> Document:
    sent = Push(CLUSTER, "v1", "a", 3, 4213, 1.0, change)
    return pushed(sent, answer and Answer(sent, *answer), EPOCH)


def test_a_push_is_a_line_under_its_header() -> None:
    change = Change(("outbound|80||a",), ("b",), (), ())

    lines = [
        header(),
        push(told(change, (1.0042, None))),
        push(told(Change(("a", "b"), ("c",), ("d",)), (1.0042, None))),
        push(told(Change((), (), (), unknown=("a", "b", "c", "d")), (1.0042, None))),
        push(told(Change((), ("a",), ()), (1.1, "bad\n  port"))),
        push(told(None, None)),
        push(told(Change((), (), ()), (1.0, None))),
        push(told(Change((), (), (), unknown=("",)), (1.0, None))),
    ]

    titles = "type  version                  added changed removed     bytes       ms  answer"
    time = "18:00:01.000  cds   v1                      "
    assert lines == [
        f"pushed        {titles}",
        f"{time}     1       1       0      4213      4.2  ACK +outbound|80||a ~b",
        f"{time}     2       1       1      4213      4.2  ACK",
        f"{time}     ?      ?4       0      4213      4.2  ACK",
        f"{time}     0       1       0      4213    100.0  NACK: bad port",
        f"{time}     -       -       -      4213        -  unanswered",
        f"{time}     0       0       0      4213      0.0  ACK",
        f"{time}     ?      ?1       0      4213      0.0  ACK",
    ]


def test_many_names_are_counted_and_few_are_told() -> None:
    names = tuple(str(number) for number in range(1000))

    found = told(Change(names, (), ()), (2.0, None))

    assert found["change"]["added"] == 1000
    assert found["names"] == {"added": [str(number) for number in range(20)]}


def test_a_name_is_told_as_far_as_people_read_it() -> None:
    found = told(Change(("n" * 1000,), (), ()), (2.0, None))

    assert found["names"] == {"added": ["n" * 256]}


def test_nothing_of_what_others_have_named_reaches_the_terminal_as_an_order() -> None:
    evil = "\x1b]0;title\x07"
    table = SyncTable()
    table.requested(Request(CLUSTER, "", "", None), 1, 1.0)
    table.responded(Response(CLUSTER, evil, "n", 1), 1, 2.0)
    sent = Push(CLUSTER, evil, "a", 3, 4213, 1.0, Change((evil,), (), ()))

    text = status(document(CONNECTED, 1, Stream(1, Kind.SOTW, evil, EPOCH, table), EPOCH), EPOCH)
    line = push(pushed(sent, Answer(sent, 2.0, None), EPOCH))

    assert text.replace("\n", "").isprintable()
    assert line.isprintable()
    assert line.count(r"\x1b]0;title\x07") == 2
