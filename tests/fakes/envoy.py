"""A stand-in for Envoy: a process with an admin port that records what it is asked.

Real Envoys prove the whole path elsewhere; this one can be told to misbehave. Started as

    python envoy.py DIRECTORY

it reads `behaviour.json` there, writes `port` once it listens, and appends a line to `requests`
for each admin request and each signal.

Behaviour keys: `ready` (status of /ready), `stats` (list of bodies or null for a failure, the
last one repeats), `hang` (targets that are never answered), `refuse` (targets answered with 500),
`on_term` (exit code, or null to ignore the signal), `closes_after` (target after which nobody
listens any more), `last_words` (what it writes when it is asked to stop).
"""

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

DIRECTORY = Path(sys.argv[1])
BEHAVIOUR: dict[str, Any] = json.loads((DIRECTORY / "behaviour.json").read_text())


def record(line: str) -> None:
    with (DIRECTORY / "requests").open("a") as file:
        file.write(line + "\n")


class Admin(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        record(f"GET {self.path}")
        self.answer()

    def do_POST(self) -> None:
        record(f"POST {self.path}")
        self.answer()

    def answer(self) -> None:
        target = self.path.split("?")[0]
        if target in BEHAVIOUR.get("hang", []):
            threading.Event().wait()
        status, body = 500 if target in BEHAVIOUR.get("refuse", []) else 200, "OK\n"
        if target == "/ready":
            status = BEHAVIOUR.get("ready", 200)
        if target == "/stats":
            bodies = BEHAVIOUR.get("stats", [""])
            found = bodies.pop(0) if len(bodies) > 1 else bodies[0]
            status, body = (500, "") if found is None else (200, found)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())
        if target == BEHAVIOUR.get("closes_after"):
            threading.Thread(target=server.shutdown).start()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        del format, args


def on_usr1(*_: object) -> None:
    record("SIGUSR1")


def on_term(*_: object) -> None:
    record("SIGTERM")
    sys.stdout.write(BEHAVIOUR.get("last_words", ""))
    sys.stdout.flush()
    code = BEHAVIOUR.get("on_term", 0)
    if code is not None:
        os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGUSR1, on_usr1)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Admin)
    temporary = DIRECTORY / "port.new"
    temporary.write_text(str(server.server_address[1]))
    temporary.rename(DIRECTORY / "port")
    with server:
        server.serve_forever()
    while True:
        signal.pause()
