"""What the demo reads from clients, Envoy and the kernel."""

import json

import pytest

from agent.demo.observe import Reply, accepted, can_make_namespaces, parse_reply, privileges

STATUS = """\
Name:\tenvoy
Uid:\t1337\t1337\t1337\t1337
Gid:\t1337\t1337\t1337\t1337
CapInh:\t0000000000000000
CapPrm:\t0000000000000000
CapEff:\t0000000000000000
CapBnd:\t0000000000000000
CapAmb:\t0000000000000000
"""
STATS = """\
listener.0.0.0.0_15006.downstream_cx_total: 2
listener.[__]_15006.downstream_cx_total: 3
listener.0.0.0.0_15006.worker_0.downstream_cx_total: 5
listener.0.0.0.0_115006.downstream_cx_total: 7
listener.admin.downstream_cx_total: 9
http.inbound.downstream_cx_total: 11

"""


def test_a_reply_is_read() -> None:
    body = json.dumps({"peer": "127.0.0.6"})
    line = json.dumps({"status": 200, "headers": {"connection": "Close"}, "body": body})

    reply = parse_reply(line)

    assert reply == Reply(status=200, connection="close", body=body, error="")
    assert reply.peer == "127.0.0.6"
    assert str(reply) == "200"


def test_a_reply_shows_the_error_in_place_of_a_status() -> None:
    assert str(parse_reply('{"error": "TimeoutError: timed out"}')) == "TimeoutError: timed out"


def test_a_client_that_wrote_nothing_is_an_error() -> None:
    assert str(parse_reply("")) == "no reply: ''"


@pytest.mark.parametrize("body", ["", "upstream connect error", "[]", "{}"])
def test_a_body_of_somebody_else_names_no_peer(body: str) -> None:
    assert Reply(503, "", body, "").peer == ""


def test_connections_of_all_listeners_of_a_port_are_counted_once() -> None:
    assert accepted(STATS, 15006) == 5


def test_a_port_without_listener_has_accepted_nothing() -> None:
    assert accepted(STATS, 15001) == 0


def test_a_process_without_privileges_says_so() -> None:
    assert privileges(STATUS) == "1337:1337, no capabilities"


def test_a_capability_that_could_be_had_is_told() -> None:
    status = STATUS.replace("CapBnd:\t0000000000000000", "CapBnd:\t0000000000001000")

    assert privileges(status) == "1337:1337, capabilities 0x1000"


def test_users_that_differ_are_all_told() -> None:
    status = STATUS.replace("Uid:\t1337\t1337", "Uid:\t1337\t0")

    assert privileges(status).startswith("0,1337:1337,")


@pytest.mark.parametrize(
    ("effective", "can"), [("1ffffffffff", True), ("201000", True), ("1000", False), ("0", False)]
)
def test_namespaces_need_two_capabilities(effective: str, *, can: bool) -> None:
    assert can_make_namespaces(f"CapPrm:\t0\nCapEff:\t{effective}\nCapBnd:\t0\n") is can
