"""One image of a registry.

Source: xds-identity-dns.md section 3.5; the OCI distribution specification.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import IO, Final, NamedTuple, TypeVar

import aiohttp

from agent.wasm.fetch.addresses import is_local_registry
from agent.wasm.fetch.client import Surroundings, Web, receive
from agent.wasm.fetch.errors import FetchError, WebError
from agent.wasm.fetch.registry.auth import (
    Challenge,
    Credentials,
    basic,
    parse_challenge,
    read_token,
    realms_problem,
    token_form,
    token_url,
)
from agent.wasm.fetch.registry.image import ACCEPTED, Layer, Manifest, read_manifest
from agent.wasm.fetch.retry import OK, REGISTRY_ATTEMPTS, REGISTRY_STATUSES, registry_pause
from agent.wasm.fetch.unpack import Content, TooLargeError, digest
from agent.wasm.reference import SHA256, Reference

UNAUTHORIZED: Final = 401
#: After which a registry nearby is asked without TLS, too.
PLAIN_SECONDS: Final = 0.3
MAX_MANIFEST_BYTES: Final = 4 << 20
MAX_TOKEN_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 2  #: of an index and an image in it

T = TypeVar("T")
Send = Callable[[], AbstractAsyncContextManager[aiohttp.ClientResponse]]
Take = Callable[[aiohttp.ClientResponse], Awaitable[T]]


class Ping(NamedTuple):
    """How a registry is spoken to."""

    base: str  #: scheme and authority
    challenge: Challenge | None


class Registry:
    """Fetches one image; `connect` comes first."""

    def __init__(
        self,
        web: Web,
        reference: Reference,
        credentials: Credentials | None,
        surroundings: Surroundings,
    ) -> None:
        self._web = web
        self._reference = reference
        self._credentials = credentials
        self._surroundings = surroundings
        self._base = ""
        self._authorization = ""

    async def connect(self) -> None:
        """Find out how the registry is spoken to, and get what it wants to see.

        Raises:
            FetchError: it cannot be reached, or gives no token.
        """
        self._base, challenge = await self._ping()
        known = self._credentials
        if known and known.registry_token:
            self._authorization = f"Bearer {known.registry_token}"
        elif challenge and challenge.is_bearer:
            self._authorization = f"Bearer {await self._token(challenge)}"
        elif known and known.username:
            self._authorization = basic(known)

    async def manifest(self) -> tuple[Manifest, str]:
        """Return the manifest, and its hex digest: the module's checksum.

        Raises:
            FetchError: there is none, or it is not what was asked for.
        """
        version = self._reference.version
        for _ in range(MAX_DEPTH):
            body, media_type = await self._manifest(version)
            found = hashlib.sha256(body).hexdigest()
            if version.startswith(SHA256) and version != SHA256 + found:
                raise FetchError(f"manifest has digest {SHA256}{found}, expected {version}")
            try:
                read = read_manifest(body, media_type)
            except ValueError as error:
                raise FetchError(str(error)) from None
            if isinstance(read, Manifest):
                return read, found
            version = read
        raise FetchError("an index holds another index")

    async def blob(self, layer: Layer, file: IO[bytes], limit_bytes: int) -> IO[bytes]:
        """Return a layer, in the file given.

        Raises:
            FetchError: there is none, or it is not what the manifest names.
            TooLargeError: it is larger than the limit.
        """

        async def take(response: aiohttp.ClientResponse) -> Content:
            _check(response)
            return await receive(response, file, limit_bytes)

        content = await self._ask(f"blobs/{layer.digest}", take)
        if content.is_cut:
            raise TooLargeError(limit_bytes)
        found = SHA256 + await asyncio.to_thread(digest, file)
        if found != layer.digest:
            raise FetchError(f"layer has digest {found}, expected {layer.digest}")
        return file

    async def _manifest(self, version: str) -> tuple[bytes, str]:
        async def take(response: aiohttp.ClientResponse) -> tuple[bytes, str]:
            _check(response)
            return await _short(response, MAX_MANIFEST_BYTES), response.content_type

        return await self._ask(f"manifests/{version}", take, {"Accept": ACCEPTED})

    async def _ask(self, what: str, take: Take[T], headers: Mapping[str, str] | None = None) -> T:
        url = f"{self._base}/v2/{self._reference.repository}/{what}"
        headers = dict(headers or {})
        if self._authorization:
            headers["Authorization"] = self._authorization
        return await self._persist(lambda: self._web.get(url, headers), take)

    async def _persist(self, send: Send, take: Take[T]) -> T:
        """Return what becomes of an answer; what may pass is tried again."""
        for attempt in range(1, REGISTRY_ATTEMPTS + 1):
            is_last = attempt == REGISTRY_ATTEMPTS
            try:
                async with send() as response:
                    if response.status not in REGISTRY_STATUSES or is_last:
                        return await take(response)
            except WebError as error:
                if not error.is_temporary or is_last:
                    raise
            await self._surroundings.sleep(registry_pause(attempt, self._surroundings.rng))
        raise AssertionError("the last attempt returns or raises")

    async def _ping(self) -> Ping:
        """Return how the registry is spoken to: with TLS if that works."""
        if is_local_registry(self._reference.registry):
            return await self._ping_both()
        try:
            return await self._ping_at("https")
        except WebError as error:
            if not error.speaks_plain:
                raise
        return await self._ping_at("http")

    async def _ping_both(self) -> Ping:
        """Return what works first, with TLS ahead."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._try("https"))]
            waiting: set[asyncio.Task[Ping | FetchError]] = set(tasks)
            while waiting:
                timeout = PLAIN_SECONDS if len(tasks) == 1 else None
                done, waiting = await asyncio.wait(
                    waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
                for found in (task.result() for task in done):
                    if isinstance(found, Ping):
                        for task in waiting:
                            task.cancel()
                        return found
                if len(tasks) == 1:
                    tasks.append(group.create_task(self._try("http")))
                    waiting.add(tasks[-1])
        problems = [task.result() for task in tasks]
        raise FetchError(f"https: {problems[0]}; http: {problems[1]}")

    async def _try(self, scheme: str) -> Ping | FetchError:
        try:
            return await self._ping_at(scheme)
        except FetchError as error:
            return error

    async def _ping_at(self, scheme: str) -> Ping:
        base = f"{scheme}://{self._reference.registry}"

        async def take(response: aiohttp.ClientResponse) -> Ping:
            if response.status != UNAUTHORIZED:
                _check(response)
                return Ping(base, None)
            wanted = _challenges(response)
            if problem := realms_problem(wanted):
                raise FetchError(problem)
            return Ping(base, parse_challenge(wanted))

        return await self._persist(lambda: self._web.get(f"{base}/v2/"), take)

    async def _token(self, challenge: Challenge) -> str:
        async def take(response: aiohttp.ClientResponse) -> bytes:
            _check(response)
            return await _short(response, MAX_TOKEN_BYTES)

        known = self._credentials
        if not challenge.realm:
            raise FetchError("registry wants a token and does not say from where")
        try:
            body = await self._persist(lambda: self._token_answer(challenge, known), take)
            return read_token(body)
        except (FetchError, ValueError) as error:
            raise FetchError(f"no token: {error}") from None

    def _token_answer(
        self, challenge: Challenge, known: Credentials | None
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        if known and known.identity_token:
            form = token_form(challenge, self._reference, known)
            return self._web.post(challenge.realm, form)
        headers = {"Authorization": basic(known)} if known and known.username else {}
        return self._web.get(token_url(challenge, self._reference), headers)


def _check(response: aiohttp.ClientResponse) -> None:
    if response.status == OK:
        return
    problem = realms_problem(_challenges(response)) if response.status == UNAUTHORIZED else None
    raise FetchError(problem or f"status {response.status}")


def _challenges(response: aiohttp.ClientResponse) -> Sequence[str]:
    return response.headers.getall("WWW-Authenticate", [])


async def _short(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    body = b""
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > limit_bytes:
            raise FetchError(f"answer is longer than {limit_bytes} bytes")
    return body
