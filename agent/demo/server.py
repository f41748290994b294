"""A small HTTP application, run as a program of its own: `python server.py PORT`.

Answers every request with JSON, {"peer": who connected, "path": what was asked for};
`/slow?seconds=3` does so after three seconds. Writes a line to standard output when it listens, and
one, `GET <path>`, as each request arrives. Needs the standard library only, and nothing of ours:
whoever runs it may be unable to read the rest.
"""

import http.server
import ipaddress
import json
import socket
import socketserver
import sys
import time
from typing import Final
from urllib.parse import parse_qs, urlsplit

LISTENING: Final = "listening"


class Server(http.server.ThreadingHTTPServer):
    """Listens on every address of both families."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self) -> None:
        """Bind without the name look-up of the base class, which waits for a resolver."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "application", self.server_address[1]


class Handler(http.server.BaseHTTPRequestHandler):
    """Says who connected; keeps connections open, so that only Envoy says when to close."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer, at once or after the time asked for."""
        say(f"GET {self.path}")
        seconds = parse_qs(urlsplit(self.path).query).get("seconds", ["0"])[0]
        time.sleep(float(seconds))
        body = json.dumps({"peer": plain(self.client_address[0]), "path": self.path}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing: standard output already tells of each request."""


def plain(address: str) -> str:
    """Return an address in its usual form; IPv4 seen through an IPv6 socket is IPv4."""
    parsed = ipaddress.ip_address(address)
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


def say(line: str) -> None:
    """Write a line to standard output at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(argv: list[str]) -> None:
    """Serve until killed."""
    with Server(("", int(argv[1])), Handler) as server:
        say(LISTENING)
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv)
