"""The demo's small server and client, each a program of its own."""

import json
import subprocess
from collections.abc import Iterator

import pytest

from agent.demo.addresses import CABLE, url
from agent.demo.observe import Reply, parse_reply
from agent.demo.process import Namespace, Output, network
from agent.demo.run import CLIENT, SERVER
from agent.demo.server import LISTENING

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def joined() -> Iterator[tuple[Namespace, Namespace]]:
    with network() as (node, pod):
        yield node, pod


@pytest.fixture(scope="module")
def served(joined: tuple[Namespace, Namespace]) -> Output:
    output = Output(joined[1].spawn(SERVER, stdout=subprocess.PIPE))
    assert output.wait_for(LISTENING, 10)
    return output


def ask(node: Namespace, *targets: str) -> list[Reply]:
    return [parse_reply(line) for line in node.run([*CLIENT, *targets]).stdout.splitlines()]


@pytest.mark.usefixtures("served")
def test_the_server_says_who_connected_in_either_family(
    joined: tuple[Namespace, Namespace],
) -> None:
    replies = ask(joined[0], url(CABLE.pod_ipv4, 8080), url(CABLE.pod_ipv6, 8080))

    assert [reply.status for reply in replies] == [200, 200]
    assert [reply.peer for reply in replies] == [CABLE.node_ipv4, CABLE.node_ipv6]


def test_a_request_is_announced_before_it_is_answered(
    joined: tuple[Namespace, Namespace], served: Output
) -> None:
    target = url(CABLE.pod_ipv4, 8080, "/slow?seconds=60")
    asking = joined[0].spawn([*CLIENT, target], stdout=subprocess.PIPE)

    assert served.wait_for("GET /slow?seconds=60", 10)
    assert asking.poll() is None


@pytest.mark.usefixtures("served")
def test_the_path_is_asked_for_as_it_is_written(joined: tuple[Namespace, Namespace]) -> None:
    (reply,) = ask(joined[0], url(CABLE.pod_ipv4, 8080, "/a//b?c=d&e"))

    assert json.loads(reply.body)["path"] == "/a//b?c=d&e"


@pytest.mark.usefixtures("served")
def test_the_server_does_not_close_connections_by_itself(
    joined: tuple[Namespace, Namespace],
) -> None:
    (reply,) = ask(joined[0], url(CABLE.pod_ipv4, 8080))

    assert reply.connection == ""


def test_nobody_there_is_an_error(joined: tuple[Namespace, Namespace]) -> None:
    (reply,) = ask(joined[0], url(CABLE.pod_ipv4, 9))

    assert reply.status == 0
    assert "ConnectionRefusedError" in reply.error


def test_a_line_that_does_not_come_is_not_waited_for_long(
    joined: tuple[Namespace, Namespace],
) -> None:
    says_something_else = joined[0].spawn(["sh", "-c", "echo other; sleep 60"], stdout=-1)
    says_nothing = joined[0].spawn(["true"], stdout=-1)

    assert not Output(says_something_else).wait_for("this", 0.1)
    assert not Output(says_nothing).wait_for("this", 60)
