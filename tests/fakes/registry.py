"""A registry of OCI images that speaks the real protocol, tokens included."""

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web

from agent.wasm.fetch.registry.image import (
    DOCKER_INDEX,
    DOCKER_LAYER,
    DOCKER_MANIFEST,
    OCI_INDEX,
    OCI_LAYER,
    OCI_MANIFEST,
    WASM_LAYER,
)
from tests.fakes.archives import tar_gz
from tests.fakes.fetching import Bench, fetching
from tests.fakes.wasm import MODULE
from tests.fakes.web import web_server

TOKEN = "a-token"  # noqa: S105 - of nobody
#: Where registries and their tokens may be.
PUBLIC = "auth.example.com"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass
class FakeRegistry:
    """Serves what was pushed; records what was asked."""

    #: Who may pull, with Basic or for a token.
    user: tuple[str, str] | None = None
    #: Where tokens are; none: a password is enough.
    realm: str = ""
    identity_token: str = ""
    #: Sent instead of an answer, in this order; 0 drops the connection.
    failures: list[int] = field(default_factory=list)
    #: Where blobs are instead.
    blob_host: str = ""
    paths: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    _blobs: dict[str, bytes] = field(default_factory=dict)
    _manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def push(self, tag: str, media_type: str, layers: Iterable[tuple[str, bytes]]) -> str:
        """Store an image; return its digest."""
        described = []
        for kind, content in layers:
            self._blobs[digest_of(content)] = content
            described.append({"mediaType": kind, "digest": digest_of(content)})
        return self.put(tag, media_type, {"layers": described})

    def put(self, tag: str, media_type: str, said: dict[str, Any]) -> str:
        """Store a manifest; return its digest."""
        body = json.dumps({"schemaVersion": 2, "mediaType": media_type, **said}).encode()
        return self.put_text(tag, body, media_type)

    def put_text(self, tag: str, body: bytes, media_type: str = "text/plain") -> str:
        """Store a manifest as it is; return its digest."""
        self._manifests[tag] = self._manifests[digest_of(body)] = (media_type, body)
        return digest_of(body)

    def push_docker(self, tag: str, module: bytes = MODULE) -> str:
        other = tar_gz(("other", b"x"))
        layers = [(DOCKER_LAYER, other), (DOCKER_LAYER, tar_gz(("plugin.wasm", module)))]
        return self.push(tag, DOCKER_MANIFEST, layers)

    def push_compatible(self, tag: str, module: bytes = MODULE) -> str:
        return self.push(tag, OCI_MANIFEST, [(OCI_LAYER, tar_gz(("a/plugin.wasm", module)))])

    def push_artifact(self, tag: str, module: bytes = MODULE) -> str:
        layers = [(WASM_LAYER, module), ("application/vnd.module.wasm.config.v1+json", b"{}")]
        return self.push(tag, OCI_MANIFEST, layers)

    def push_index(self, tag: str, *, docker: bool = False) -> tuple[str, str]:
        """Store an index of two images; return its digest and that of the usual platform."""
        digests = {name: self.push_docker(name, MODULE + name.encode()) for name in ("arm", "amd")}
        children = [
            {"digest": digests[name], "platform": {"os": "linux", "architecture": f"{name}64"}}
            for name in digests
        ]
        kind = DOCKER_INDEX if docker else OCI_INDEX
        return self.put(tag, kind, {"manifests": children}), digests["amd"]

    def spoil(self, digest: str) -> None:
        """Have other content under a digest."""
        if digest in self._blobs:
            self._blobs[digest] += b"spoilt"
        else:
            kind, body = self._manifests[digest]
            self._manifests[digest] = kind, body + b" "

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.paths.append(request.path)
        self.authorizations.append(request.headers.get("Authorization", ""))
        if self.failures and (failure := self.failures.pop(0)) != 200:
            if not failure and request.transport:
                request.transport.abort()
            return web.Response(status=failure or 500)
        if request.path == "/token":
            return await self._give_token(request)
        if self.user and not self._is_known(request):
            return self._challenge()
        return self._serve(request.path)

    def _is_known(self, request: web.BaseRequest) -> bool:
        assert self.user
        wanted = f"Bearer {TOKEN}" if self.realm else _basic(*self.user)
        return request.headers.get("Authorization") == wanted

    def _challenge(self) -> web.Response:
        header = f'Bearer realm="{self.realm}",service="here"' if self.realm else "Basic"
        return web.Response(status=401, headers={"WWW-Authenticate": header})

    async def _give_token(self, request: web.BaseRequest) -> web.Response:
        assert self.user
        form = parse_qs((await request.read()).decode())
        if self.identity_token:
            is_known = form.get("refresh_token") == [self.identity_token]
            scope = form.get("scope")
        else:
            is_known = request.headers.get("Authorization") == _basic(*self.user)
            scope = parse_qs(request.query_string).get("scope")
        if not is_known or scope != ["repository:owner/image:pull"]:
            return web.Response(status=401)
        return web.json_response({"token": TOKEN})

    def _serve(self, path: str) -> web.Response:
        what, _, name = path.rpartition("/")
        if path == "/v2/":
            return web.Response()
        if what == "/v2/owner/image/manifests" and name in self._manifests:
            kind, body = self._manifests[name]
            return web.Response(body=body, headers={"Content-Type": kind})
        if what == "/v2/owner/image/blobs" and name in self._blobs:
            if self.blob_host:
                return web.Response(status=307, headers={"Location": self.blob_host + path})
            return web.Response(body=self._blobs[name])
        return web.Response(status=404)


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def docker_config(registry: str, user: str, password: str) -> str:
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    return json.dumps({"auths": {registry: {"auth": auth}}})


@asynccontextmanager
async def pulling(
    directory: Path,
    registry: FakeRegistry,
    **settings: Any,  # noqa: ANN401 - of fetching
) -> AsyncIterator[tuple[Bench, str]]:
    """Serve a registry without TLS; yield what fetches, and the registry's host and port."""
    names = {PUBLIC: "127.0.0.1", "blobs.example.com": "127.0.0.1"}
    async with (
        web_server(registry) as port,
        fetching(directory, names=names, **settings) as bench,
    ):
        yield bench, f"127.0.0.1:{port}"
