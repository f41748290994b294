"""`agent cert`, against an answer as the agent's status port gives it."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest

from agent.identity.report import Facts, document
from tests.fakes.ca import Root

ROOT: Final = Root()
SPIFFE_ID: Final = "spiffe://cluster.local/ns/default/sa/hello"
#: How often a server looks whether it is to stop.
POLL_SECONDS: Final = 0.01
PAIR: Final = ROOT.pair(SPIFFE_ID)
SHOWN: Final = document(
    Facts(
        SPIFFE_ID,
        "cluster.local",
        "issued by ca:15012",
        PAIR.certificate,
        ROOT.pem.encode(),
        next_renewal=2e9,
    )
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent", "cert", *words]
    root = Path(__file__).parents[2]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)


@contextlib.contextmanager
def status_port(shown: Any) -> Iterator[int]:  # noqa: ANN401 - JSON
    """Answer as the agent does, with text as it is, or with 404 where there is nothing to show."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/debug/certs"
            self.send_response(404 if shown is None else 200)
            self.end_headers()
            text = shown if isinstance(shown, str) else json.dumps(shown)
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the library's
            """Be quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(POLL_SECONDS,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_what_is_served_is_told_in_words() -> None:
    with status_port(SHOWN) as port:
        done = run(f"--debug-port={port}")

    assert done.returncode == 0
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert f"SPIFFE ID      {SPIFFE_ID}" in lines
    assert "  signed by    CN=mesh root" in lines
    assert f"  SAN          URI:{SPIFFE_ID}" in lines
    assert "PRIVATE" not in done.stdout


def test_or_as_json() -> None:
    with status_port(SHOWN) as port:
        done = run("-o", "json", f"--debug-port={port}")

    assert json.loads(done.stdout) == SHOWN


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--debug-port=1",), "Error: no answer from the agent at localhost:1: "),
        (("-o", "xml"), "Error: --output='xml': expected json, or nothing for text"),
        (("--nonsense",), "Error: unknown flag"),
        (("default",), "Error: cert default: expected flags alone"),
    ],
)
def test_what_does_not_work_is_one_line(words: tuple[str, ...], said: str) -> None:
    done = run(*words)

    assert done.returncode == 255
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def test_an_agent_without_certificates_is_said_to_be_one() -> None:
    with status_port(None) as port:
        done = run(f"--debug-port={port}")

    assert done.returncode == 255
    assert "answers 404, without certificates" in done.stderr


@pytest.mark.parametrize("shown", ["<html>", "[]", '{"spiffe_id": "ok"}', ""])
@pytest.mark.parametrize("words", [(), ("-o", "json")])
def test_somebody_else_on_the_port_is_not_the_agent(shown: str, words: tuple[str, ...]) -> None:
    with status_port(shown) as port:
        done = run(f"--debug-port={port}", *words)

    assert done.returncode == 255
    assert done.stderr == (
        f"Error: localhost:{port} answers with no certificates; is it the agent's status port?\n"
    )


def test_help_names_the_flags() -> None:
    done = run("--help")

    assert done.returncode == 0
    assert "--debug-port" in done.stdout
