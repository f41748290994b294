"""The commands as a hook or a script runs them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.request.cli import request, wait
from tests.fakes.scripted_server import answer, scripted_server

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z\t(\w+)\t(.*)")
NOT_READY = answer("503 Service Unavailable", b"xds: no connection to istiod\n")
READY = answer("200 OK")


def lines(text: str) -> list[tuple[str, str]]:
    """Return level and message of each line."""
    found = [LINE.fullmatch(line) for line in text.splitlines()]
    return [(match[1], match[2]) for match in found if match]


def wait_for(port: int, *flags: str) -> int:
    url = f"http://127.0.0.1:{port}/healthz/ready"
    return wait([f"--url={url}", "--periodMillis", "10", *flags], {})


def test_wait_returns_at_the_first_200(capfd: pytest.CaptureFixture[str]) -> None:
    with scripted_server(NOT_READY, NOT_READY, READY) as server:
        code = wait_for(server.port)

    assert code == 0
    assert lines(capfd.readouterr().out) == [
        ("info", "Waiting for Envoy proxy to be ready (timeout: 60 seconds)..."),
        ("info", "Not ready yet: HTTP status code 503: xds: no connection to istiod"),
        ("info", "Envoy is ready!"),
    ]


def test_a_log_that_cannot_be_written_does_not_fail_the_hook() -> None:
    with scripted_server(READY) as server, Path("/dev/full").open("w") as full:
        url = f"http://127.0.0.1:{server.port}/healthz/ready"
        argv = [sys.executable, "-m", "agent", "wait", f"--url={url}"]
        done = subprocess.run(
            argv, check=False, stdout=full, stderr=full, timeout=30, cwd=Path(__file__).parents[2]
        )

    assert done.returncode == 0


def test_a_reason_is_told_when_it_changes_not_when_it_grows_older(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """As the agent tells it: a line for each trouble, the last one says for how long."""
    bodies = [b"no listeners\nnot ready for 0.1s\n", b"no listeners\nnot ready for 0.2s\n"]
    bodies += [b"no workers\nnot ready for 0.3s\n"]
    answers = [answer("503 Service Unavailable", body) for body in bodies]
    with scripted_server(*answers, READY) as server:
        wait_for(server.port)

    assert [text for _, text in lines(capfd.readouterr().out)][1:-1] == [
        "Not ready yet: HTTP status code 503: no listeners; not ready for 0.1s",
        "Not ready yet: HTTP status code 503: no workers; not ready for 0.3s",
    ]


def test_s2_a_timeout_names_what_was_waited_for(capfd: pytest.CaptureFixture[str]) -> None:
    with scripted_server(NOT_READY) as server:
        code = wait_for(server.port, "--timeoutSeconds=0")

    assert code == 255
    captured = capfd.readouterr()
    expected = (
        "timeout waiting for Envoy proxy to become ready. "
        "Last error: HTTP status code 503: xds: no connection to istiod"
    )
    assert captured.err == f"Error: {expected}\n"
    assert lines(captured.out)[-1] == ("error", expected)


def test_one_look_is_bounded(capfd: pytest.CaptureFixture[str]) -> None:
    with scripted_server([]) as server:
        code = wait_for(server.port, "--timeoutSeconds=0", "--requestTimeoutMillis=20")

    assert (code, len(server.requests)) == (255, 1)
    assert capfd.readouterr().err.endswith("/healthz/ready: no answer in 0.02s\n")


def test_every_attempt_is_logged_at_debug_level(capfd: pytest.CaptureFixture[str]) -> None:
    with scripted_server(NOT_READY, NOT_READY, READY) as server:
        wait_for(server.port, "--log_output_level=default:debug")

    levels = [level for level, _ in lines(capfd.readouterr().out)]
    assert levels == ["info", "info", "debug", "info"]


def test_logging_flags_are_honoured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"

    with scripted_server(READY) as server:
        wait_for(server.port, "--log_as_json", f"--log_target={log}", "--log_target=stderr")

    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == log.read_text()
    last = json.loads(captured.err.splitlines()[-1])
    assert (last["level"], last["msg"]) == ("info", "Envoy is ready!")
    assert last["time"].endswith("Z")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--unknown"], "unknown flag --unknown"),
        (["--timeoutSeconds", "x"], "--timeoutSeconds='x': expected a whole number"),
        (["--log_output_level=loud"], "--log_output_level item 'loud'"),
        (["--log_target=/nowhere/log"], "--log_target='/nowhere/log': no such file or directory"),
        (["--url=unix:/x", "--timeoutSeconds=0"], "expected http://host[:port]/path"),
    ],
)
def test_wait_refuses_what_it_cannot_understand(
    argv: Sequence[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert wait(argv, {}) == 255
    assert message in capfd.readouterr().err


@pytest.mark.parametrize("command", [wait, request])
def test_help_lists_the_flags(command: object, capfd: pytest.CaptureFixture[str]) -> None:
    assert callable(command)

    assert command(["--help"], {}) == 0

    assert "--log_as_json" in capfd.readouterr().out


def ask(port: int, *words: str) -> int:
    """Make a request to a port that counts as the pod's admin port."""
    proxy_config = json.dumps({"proxyAdminPort": port})
    return request([f"--debug-port={port}", *words], {"PROXY_CONFIG": proxy_config})


@pytest.mark.parametrize("path", ["/stats?filter=^a|b$", "stats?filter=^a|b$"])
def test_request_prints_nothing_but_the_body(path: str, capfd: pytest.CaptureFixture[str]) -> None:
    with scripted_server(answer("200 OK", b'{"a": 1}')) as server:
        code = ask(server.port, "GET", path, "--log_output_level=debug")

    captured = capfd.readouterr()
    assert (code, captured.out, captured.err) == (0, '{"a": 1}\n', "")
    assert server.requests[0].startswith(b"GET /stats?filter=^a|b$ HTTP/1.1\r\n")


def test_request_sends_method_and_body(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with scripted_server(answer("200 OK", b"\xff\0")) as server:
        code = ask(server.port, "POST", "drain", "body")

    assert code == 0
    assert capfdbinary.readouterr().out == b"\xff\0\n"
    assert server.requests[0].startswith(b"POST /drain HTTP/1.1\r\n")
    assert server.requests[0].endswith(b"\r\n\r\nbody")


def test_request_prints_what_is_not_found(capfd: pytest.CaptureFixture[str]) -> None:
    with scripted_server(answer("404 Not Found", b"no such path")) as server:
        code = ask(server.port, "GET", "nothing")

    assert (code, capfd.readouterr().out) == (0, "no such path\n")


def test_request_reports_an_error_status_on_stderr_only(capfd: pytest.CaptureFixture[str]) -> None:
    with scripted_server(answer("400 Bad Request", b"why")) as server:
        code = ask(server.port, "GET", "x", "--log_target=stdout")

    captured = capfd.readouterr()
    error, line = captured.err.splitlines()
    assert (code, captured.out) == (255, "")
    assert error == "Error: received unsuccessful status code 400: why"
    assert lines(line) == [("error", "received unsuccessful status code 400: why")]


def test_request_to_nobody_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with scripted_server(READY) as server:
        port = server.port

    assert ask(port, "GET", "x") == 255
    assert "connection refused" in capfd.readouterr().err


def test_request_asks_no_port_outside_the_list(capfd: pytest.CaptureFixture[str]) -> None:
    environ = {"PROXY_CONFIG": '{"statusPort": 15030, "proxyAdminPort": 15010}'}

    assert request(["--debug-port=80", "GET", "x"], environ) == 255
    assert (
        "Error: debug port 80 is not in allowed list [15000 15004 15020 15021 15010 15030]\n"
        in capfd.readouterr().err
    )


def test_d6_a_status_port_from_an_annotation_may_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pod_info = tmp_path / "etc" / "istio" / "pod"
    pod_info.mkdir(parents=True)

    with scripted_server(answer("200 OK", b"OK")) as server:
        annotation = f'status.sidecar.istio.io/port="{server.port}"\n'
        (pod_info / "annotations").write_text(annotation)
        code = request([f"--debug-port={server.port}", "POST", "drain"], {})

    assert (code, capfd.readouterr().out) == (0, "OK\n")


def test_an_unusable_configuration_adds_no_port(capfd: pytest.CaptureFixture[str]) -> None:
    assert request(["--debug-port=80", "GET", "x"], {"PROXY_CONFIG": "[1"}) == 255
    assert "[15000 15004 15020 15021]" in capfd.readouterr().err


def test_request_needs_method_and_path(capfd: pytest.CaptureFixture[str]) -> None:
    assert request(["GET"], {}) == 255
    assert "requires at least 2 arg(s), only received 1" in capfd.readouterr().err


def request_into(stdout: int) -> subprocess.CompletedProcess[bytes]:
    code = "import sys; from agent.request.cli import request; sys.exit(request(sys.argv[1:], {}))"
    with scripted_server(READY) as server:
        environ = {"PROXY_CONFIG": json.dumps({"proxyAdminPort": server.port})}
        program = code.replace("{}", repr(environ))
        return subprocess.run(
            [sys.executable, "-c", program, f"--debug-port={server.port}", "GET", "x"],
            stdout=stdout,
            stderr=subprocess.PIPE,
            check=False,
        )


def test_a_stdout_that_takes_nothing_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = request_into(full.fileno())

    assert done.returncode == 255
    assert b"Error: stdout: no space left on device" in done.stderr


def test_a_reader_that_has_seen_enough_is_none() -> None:
    reader, writer = os.pipe()
    os.close(reader)

    done = request_into(writer)

    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
