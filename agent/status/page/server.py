"""Serves the page, read anew for each who looks: nothing of it is held in memory.

Texts in the document come from the network, such as what Envoy has against a push. The page puts
them in as text alone, and the policy below has a browser run nothing but the page's own scripts.
"""

import json
import os.path
from typing import Final

from agent.http.message import Headers, Reply
from agent.status.page.overview import Parts, overview

HERE: Final = os.path.dirname(__file__)  # noqa: PTH120 -- pathlib is not in memory
#: By request path; each but the first is a file's own name.
TYPES: Final = {
    "/": "text/html; charset=utf-8",
    "/page/style.css": "text/css; charset=utf-8",
    "/page/main.js": "text/javascript; charset=utf-8",
    "/page/sections.js": "text/javascript; charset=utf-8",
    "/page/chart.js": "text/javascript; charset=utf-8",
    "/page/tree.js": "text/javascript; charset=utf-8",
    "/page/words.js": "text/javascript; charset=utf-8",
}
INDEX: Final = "index.html"
#: No script, style, picture or request of another origin; no string becomes script or HTML.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
SAFE: Final[Headers] = (
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


def page(path: str) -> Reply:
    """Return one of the page's files."""
    name = path.rpartition("/")[2] or INDEX
    with open(os.path.join(HERE, name), "rb") as file:  # noqa: PTH118, PTH123 -- as above
        body = file.read()
    headers = (
        ("Content-Type", TYPES[path]),
        ("Content-Security-Policy", POLICY),
        ("Referrer-Policy", "no-referrer"),
        *SAFE,
    )
    return Reply(200, body, headers)


def document(parts: Parts) -> Reply:
    """Return what the page polls."""
    text = json.dumps(overview(parts))
    return Reply(200, text.encode() + b"\n", (("Content-Type", "application/json"), *SAFE))
