"""Google's metadata server, as far as it makes tokens."""

import asyncio
import base64
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from agent.credentials.settings import TokenSettings
from tests.fakes.web import web_server

PATH = "/computeMetadata/v1/instance/service-accounts/default/identity"


def token(seconds: float, number: int = 0) -> str:
    """Return a token that is good for so long, with a signature that nobody checks."""
    claims = {"exp": int(time.time() + seconds), "jti": str(number)}
    head, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "RS256", "typ": "JWT"}, claims)
    )
    return f"{head}.{body}.c2ln"


class Metadata:
    """Answers what it is told to: a token, another text, a status, or nothing at all."""

    def __init__(self, directory: Path) -> None:
        self.settings = TokenSettings(
            str(directory / "token"), metadata_host="127.0.0.1", audience="cluster.local"
        )
        self.seconds = 3600.0
        self.text = ""
        self.status = 200
        self.is_silent = False
        self.targets: list[str] = []
        self.given: list[str] = []
        self._numbers = itertools.count(1)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.headers["Metadata-Flavor"] == "Google"
        assert request.path == PATH
        self.targets.append(request.raw_path)
        if self.is_silent:
            await asyncio.Event().wait()
        text = self.text or token(self.seconds, next(self._numbers))
        self.given.append(text)
        return web.Response(status=self.status, text=f"{text}\n")


@contextlib.asynccontextmanager
async def google(directory: Path) -> AsyncIterator[Metadata]:
    """Run a metadata server; `settings` leads to it, with the copy in a directory."""
    made = Metadata(directory)
    async with web_server(made) as port:
        made.settings = made.settings._replace(metadata_port=port)
        yield made
