"""How a whole pod ends: asked to, told twice, killed, or never started."""

import contextlib
import json
import os
import signal
import subprocess

import pytest

from agent.demo import files
from agent.demo.addresses import CABLE, url
from agent.demo.manifest import APPLICATION_PORT, READINESS_PATH
from agent.demo.process import Output, first_gone
from agent.demo.run import PYTHON, SERVER, RunningPod, pod
from agent.demo.scenario import SLOW_PATH
from agent.demo.server import LISTENING
from tests.envoy.whole_pod import envoys, started
from tests.waiting import block_until

pytestmark = [pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]

INSIDE = url(CABLE.pod_ipv4, APPLICATION_PORT)
OUTSIDE = url(CABLE.node_ipv4, APPLICATION_PORT)
READY = url(CABLE.pod_ipv4, 15021, READINESS_PATH)

#: Asks again and again, each time on a new connection, until its standard input ends.
LOAD = """
import http.client, json, select, sys
seen = []
while not select.select([sys.stdin], [], [], 0)[0]:
    connection = http.client.HTTPConnection(sys.argv[1], 8080, timeout=10)
    try:
        connection.request("GET", "/load")
        response = connection.getresponse()
        response.read()
        seen.append([response.status, response.getheader("connection")])
    except OSError as error:
        seen.append([repr(error), None])
    connection.close()
print(json.dumps(seen))
"""
#: Asks twice on one connection, the second time when told to.
KEPT = """
import http.client, json, sys
connection = http.client.HTTPConnection(sys.argv[1], 8080, timeout=10)
for _ in range(2):
    connection.request("GET", "/kept")
    response = connection.getresponse()
    response.read()
    print(json.dumps([response.status, response.getheader("connection")]), flush=True)
    sys.stdin.readline()
"""


def script(of: RunningPod, text: str) -> subprocess.Popen[bytes]:
    """Start a client on the node."""
    return of.node.spawn(
        [*PYTHON, "-c", text, CABLE.pod_ipv4], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def wait_until_draining(of: RunningPod) -> None:
    assert of.get_until("node", READY, lambda reply: reply.status != 200).status == 503


def test_sigterm_loses_no_request() -> None:
    with started() as made:
        load, kept = script(made, LOAD), script(made, KEPT)
        answers = Output(kept)
        assert made.servers["application"].wait_for("GET /load", 10)
        assert answers.wait_for("[200, null]", 10)
        made.begin("in", "node", f"{INSIDE[:-1]}{SLOW_PATH}")
        made.begin("out", "application", f"{OUTSIDE[:-1]}{SLOW_PATH}")

        made.terminate()

        wait_until_draining(made)
        assert kept.stdin
        kept.stdin.write(b"\n")
        assert answers.wait_for('[200, "close"]', 10), answers.text
        assert made.finish("in").status == 200
        assert made.finish("out").status == 200
        seen = json.loads(load.communicate(b"\n", timeout=10)[0])
        assert {status for status, _ in seen} == {200}
        assert seen[0] == [200, None]
        assert seen[-1] == [200, "close"]
        assert made.ended() == "exit 0"
        assert envoys(made) == []


def test_a_second_sigterm_ends_it_at_once() -> None:
    with started() as made:
        made.begin("in", "node", f"{INSIDE[:-1]}{SLOW_PATH}")
        made.terminate()
        wait_until_draining(made)

        made.terminate()

        assert made.ended() == "exit 0"
        assert made.finish("in").status == 0  # had there been time, it would have been answered
        assert envoys(made) == []


def test_signals_that_go_on_to_the_very_end_do_not_change_its_code() -> None:
    with started() as made:
        agent = made.agent
        assert agent
        made.terminate()
        wait_until_draining(made)

        def has_ended() -> bool:
            agent.terminate()
            return agent.poll() is not None

        block_until(has_ended)
        assert made.ended() == "exit 0"


def test_draining_first_makes_sigterm_quick() -> None:
    with started() as made:
        drained = made.inside.run(
            [*files.program(), "request", "--debug-port=15020", "POST", "drain"],
            environ=made.environ,
        )
        reply = made.get("node", INSIDE)
        ready = made.get("node", READY)
        made.begin("in", "node", f"{INSIDE[:-1]}{SLOW_PATH}")

        made.terminate()

        assert (drained.returncode, drained.stdout) == (0, "OK\n")
        assert (reply.status, reply.connection, ready.status) == (200, "close", 200)
        assert made.ended() == "exit 0"
        assert made.finish("in").status == 0


def test_sigterm_is_obeyed_before_envoy_has_its_configuration() -> None:
    with pod() as made:
        configuration = made.root / "etc/istio/proxy/envoy-rev.json"
        made.start_agent()
        block_until(lambda: configuration.exists() and configuration.is_fifo())

        made.terminate()

        assert made.ended() == "exit 0", made.log_text()
        assert envoys(made) == []
        assert not configuration.exists()


def test_no_envoy_outlives_a_killed_agent() -> None:
    with started() as made:
        (envoy,) = envoys(made)
        assert made.agent

        made.agent.kill()

        assert first_gone([envoy], 10) == envoy


def test_a_killed_envoy_gives_the_agent_its_exit_code_and_a_line() -> None:
    with started() as made:
        (envoy,) = envoys(made)

        os.kill(envoy, signal.SIGKILL)

        assert made.ended() == "exit 137"
        assert "signal 9" in made.log_text()


def refusal(of: RunningPod) -> str:
    """Start the agent where it cannot run; return all that it says."""
    of.start_agent()
    return last_words(of)


def last_words(of: RunningPod) -> str:
    """Return all that an agent says which cannot run."""
    assert of.ended() == "exit 255", of.log_text()
    assert envoys(of) == []
    assert list((of.root / "etc/istio/proxy").iterdir()) == []
    return of.log_text()


def test_a_missing_envoy_is_told_in_one_line() -> None:
    with pod(envoy="/nowhere/envoy") as made:
        said = refusal(made)

    assert said.startswith("Error: Envoy binary '/nowhere/envoy': no such file")
    assert said.count("\n") == 1


def test_a_port_that_is_taken_is_told_in_one_line() -> None:
    """After a while, as its owner may be about to go; so each in a pod of its own at once."""
    with contextlib.ExitStack() as stack:
        pods = {port: stack.enter_context(pod()) for port in (15000, 15001, 15006, 15020, 15021)}
        for port, made in pods.items():
            owner = made.inside.spawn([*SERVER[:-1], str(port)], stdout=subprocess.PIPE)
            assert Output(owner).wait_for(LISTENING, 10)
        for made in pods.values():
            made.start_agent()
        said = {port: last_words(made) for port, made in pods.items()}

    for port, words in said.items():
        assert words.startswith(f"Error: port {port} ")
        assert words.count("\n") == 1


def test_a_directory_that_cannot_be_written_is_told_in_one_line() -> None:
    with pod() as made:
        os.chown(made.root / "etc/istio/proxy", 0, 0)
        said = refusal(made)

    assert said.startswith("Error: etc/istio/proxy/")
    assert "cannot be written by uid 1337" in said
    assert said.count("\n") == 1


def test_resources_that_are_not_there_are_told_in_one_line() -> None:
    with pod() as made:
        made.environ["AGENT_LOCAL_XDS"] = "/nowhere"
        made.start_agent()

        assert made.ended() == "exit 255", made.log_text()
        assert envoys(made) == []
        assert "\nError: AGENT_LOCAL_XDS='/nowhere': No such file" in made.log_text()
        assert "Traceback" not in made.log_text()


def test_a_grpc_bootstrap_that_cannot_be_written_is_told_in_one_line() -> None:
    with pod() as made:
        made.environ["GRPC_XDS_BOOTSTRAP"] = "/proc/nowhere/grpc-bootstrap.json"
        made.start_agent()

        assert made.ended() == "exit 255", made.log_text()
        assert envoys(made) == []
        assert "Error: /proc/nowhere/grpc-bootstrap.json: cannot be written" in made.log_text()


def test_no_secret_of_the_configuration_is_told() -> None:
    tracer = {"lightstep": {"address": "tracer:80", "accessToken": "hunter2"}}
    with pod() as made:
        made.environ["PROXY_CONFIG"] = json.dumps({"tracing": tracer})
        made.start_agent()

        assert made.ended() == "exit 1"  # a stock Envoy lacks this tracer
        assert '"accessToken": "<masked>"' in made.log_text()
        assert "hunter2" not in made.log_text()
