"""A small HTTP client, run as a program of its own: `python client.py URL...`.

Asks for each URL on a new connection and writes one line of JSON about it: {"status", "headers"
(names in lower case), "body"}, or {"error"}. Needs the standard library only, and nothing of ours:
whoever runs it may be unable to read the rest.
"""

import http.client
import json
import sys
from typing import Final
from urllib.parse import urlsplit

TIMEOUT_SECONDS: Final = 20


def fetch(url: str) -> dict[str, object]:
    """Return what there is to say about one request."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port or 80, timeout=TIMEOUT_SECONDS
    )
    try:
        connection.request("GET", f"{parts.path}?{parts.query}" if parts.query else parts.path)
        response = connection.getresponse()
        return {
            "status": response.status,
            "headers": {name.lower(): value for name, value in response.getheaders()},
            "body": response.read().decode(errors="replace"),
        }
    except (OSError, http.client.HTTPException) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        connection.close()


def main(argv: list[str]) -> None:
    """Ask for each URL in turn."""
    for url in argv[1:]:
        sys.stdout.write(f"{json.dumps(fetch(url))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv)
