"""What of a stream's pushes was acknowledged. Source: xds-identity-dns.md sections 2.8, 10.4."""

import pytest

from agent.xds.discovery import Request, Response
from agent.xds.resources import CLUSTER, HEALTH, LISTENER
from agent.xds.sync import (
    ERROR_CHARACTERS,
    NOT_SENT,
    STALE,
    SYNCED,
    TYPES,
    WAITING,
    Answer,
    Expired,
    SyncTable,
)


def request(nonce: str = "", *, error: str | None = None, type_url: str = CLUSTER) -> Request:
    return Request(type_url, "", nonce, error)


def response(nonce: str, type_url: str = CLUSTER) -> Response:
    return Response(type_url, f"v{nonce}", nonce, 3)


def state(table: SyncTable, type_url: str = CLUSTER) -> str:
    return table.types[type_url].name()


def answer(table: SyncTable, said: Request, now: float) -> Answer:
    found = table.requested(said, 10, now)
    assert isinstance(found, Answer)
    return found


def test_what_was_asked_for_is_not_sent_then_stale_then_synced() -> None:
    table = SyncTable()

    asked = table.requested(request(), 100, 1.0)
    states = [state(table)]
    table.responded(response("a"), 2000, 2.0)
    states.append(state(table))
    said = answer(table, request("a"), 2.5)
    states.append(state(table))

    assert states == [NOT_SENT, STALE, SYNCED]
    assert asked is None
    assert table.types[CLUSTER].subscribed == 1.0
    assert (said.push.version, said.push.nonce) == ("va", "a")
    assert (said.push.resources, said.push.size) == (3, 2000)
    assert (said.seconds, said.error, said.passed_over) == (0.5, None, ())


def test_a_refused_push_stays_stale_and_what_was_accepted_is_remembered() -> None:
    table = SyncTable()
    table.responded(response("a"), 1, 0)
    table.requested(request("a"), 1, 0)
    table.responded(response("b"), 1, 0)

    refused = answer(table, request("b", error="bad port"), 1)

    assert refused.error == "bad port"
    assert state(table) == STALE
    known = table.types[CLUSTER]
    assert known.answer() == refused
    assert known.accepted is not None
    assert known.accepted.push.nonce == "a"


def test_a_changed_subscription_after_a_refusal_is_no_acceptance() -> None:
    """SotW: it carries the nonce of the refused response."""
    table = SyncTable()
    table.responded(response("a"), 1, 0)
    table.requested(request("a", error="bad port"), 1, 0)

    said = table.requested(request("a"), 1, 5)

    assert said is None
    assert state(table) == STALE
    assert table.types[CLUSTER].subscribed == 5


def test_a_new_push_makes_a_synced_type_stale() -> None:
    table = SyncTable()
    table.responded(response("a"), 1, 0)
    table.requested(request("a"), 1, 0)

    table.responded(response("b"), 1, 0)

    assert state(table) == STALE
    assert table.types[CLUSTER].answer() is None


def test_pushes_may_overlap_and_are_answered_in_order() -> None:
    table = SyncTable()
    table.responded(response("a"), 1, 1)
    table.responded(response("b"), 1, 2)

    first = answer(table, request("a"), 3)
    between = state(table)
    second = answer(table, request("b"), 4)

    assert (first.push.nonce, first.seconds, second.push.nonce) == ("a", 2, "b")
    assert (between, state(table)) == (STALE, SYNCED)


def test_who_answers_a_later_push_passes_over_the_ones_before() -> None:
    table = SyncTable()
    for nonce in "abc":
        table.responded(response(nonce), 1, 0)

    said = answer(table, request("b"), 1)

    assert [push.nonce for push in said.passed_over] == ["a"]
    assert [push.nonce for push in table.unanswered()] == ["c"]


@pytest.mark.parametrize("pushes", ["", "a"])
def test_a_nonce_that_nobody_waits_for_has_expired(pushes: str) -> None:
    table = SyncTable()
    for nonce in pushes:
        table.responded(response(nonce), 1, 0)

    assert table.requested(request("old"), 1, 0) == Expired(CLUSTER)


def test_types_do_not_mix() -> None:
    table = SyncTable()
    table.responded(response("a"), 1, 0)

    said = table.requested(request("a", type_url=LISTENER), 1, 0)

    assert said == Expired(LISTENER)
    assert (state(table), state(table, LISTENER)) == (STALE, NOT_SENT)


def test_a_push_without_nonce_can_never_be_answered() -> None:
    table = SyncTable()
    table.responded(response(""), 1, 0)

    assert table.requested(request(""), 1, 0) is None
    assert state(table) == STALE
    assert table.unanswered() == ()


def test_a_nonce_that_is_used_again_stands_for_the_later_push() -> None:
    table = SyncTable()
    for at in (1, 2):
        table.responded(response("a"), 1, at)

    assert answer(table, request("a"), 5).seconds == 3
    assert table.unanswered() == ()


def test_a_report_of_health_is_no_subscription() -> None:
    table = SyncTable()

    assert table.requested(request(error="unhealthy", type_url=HEALTH), 7, 0) is None

    assert table.types == {}
    assert (table.requests, table.request_bytes) == (1, 7)


def test_everything_is_counted() -> None:
    table = SyncTable()

    table.requested(request(), 5, 0)
    table.requested(request(type_url=LISTENER), 6, 0)
    table.responded(response("a"), 7, 0)

    assert (table.requests, table.request_bytes) == (2, 11)
    assert (table.responses, table.response_bytes) == (1, 7)


def test_what_is_kept_has_a_bound() -> None:
    table = SyncTable()
    for number in range(WAITING + 1):
        table.responded(response(str(number)), 1, 0)

    assert len(table.unanswered()) == WAITING
    assert table.unanswered()[0].nonce == "1"
    said = answer(table, request(str(WAITING), error="x" * 10_000), 0)
    assert said.error == "x" * ERROR_CHARACTERS


def test_types_without_end_are_counted_and_not_all_kept() -> None:
    table = SyncTable()
    for number in range(TYPES + 10):
        table.responded(response("1", f"envoy.T{number}"), 10, 0.0)

    assert len(table.types) == TYPES
    assert table.responses == TYPES + 10
