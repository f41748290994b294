"""HTTP to the outside: proxies, redirects, and addresses that are never connected to.

Each address is judged when a socket is made for it, after names were resolved: no redirect and no
answer of a name server gets around that.

Source: xds-identity-dns.md sections 3.6 to 3.8.
"""

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import IO, Any, Final, NamedTuple, Self
from urllib.parse import SplitResult, urljoin, urlsplit

import aiohttp
import yarl
from aiohttp.abc import AbstractResolver

from agent.http.proxies import choose_proxy
from agent.wasm.fetch.addresses import Blocked
from agent.wasm.fetch.errors import FetchError, WebError
from agent.wasm.fetch.retry import OK, http_pause, is_http_retried
from agent.wasm.fetch.unpack import Content
from agent.wasm.settings import FetchSettings

CONNECT_SECONDS: Final = 30.0
REDIRECTS: Final = (301, 302, 303, 307, 308)
MAX_REDIRECTS: Final = 10
PIECE_BYTES: Final = 256 * 1024
#: What OpenSSL says of an answer that is no TLS, by version.
PLAIN_REASONS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
UNUSABLE: Final = r"[\x00-\x20\x7f]"
SCHEMES: Final = ("http", "https")
#: Forbidden by `Blocked`, or the disk is full: no other attempt fares better.
USELESS: Final = (errno.EACCES, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: What a connection that was dropped ends with, and a name server that is not there for now.
TEMPORARY: Final = (
    errno.ECONNRESET,
    errno.EPIPE,
    errno.ECONNABORTED,
    errno.ETIMEDOUT,
    socket.EAI_AGAIN,
)


class Surroundings(NamedTuple):
    """What fetching depends on."""

    environ: Mapping[str, str]  #: for proxies, and where Docker's configuration is
    rng: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    resolver: AbstractResolver | None = None  #: none: the system's


class Web:
    """Sends requests; use it as a context."""

    def __init__(self, settings: FetchSettings, surroundings: Surroundings) -> None:
        self._insecure = settings.insecure
        self._blocked = Blocked(settings.blocked)
        self._environ = surroundings.environ
        self._resolver = surroundings.resolver
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(
            resolver=self._resolver, socket_factory=self._socket, force_close=True, limit=0
        )
        # Bodies are wanted as they are sent: digests are of those, and whoever packs says so.
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "identity", "User-Agent": "mesh-agent"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    @asynccontextmanager
    async def get(
        self, url: str, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the answer, after redirects; another host is not sent the Authorization header.

        Raises:
            WebError: there is none.
        """
        headers = dict(headers or {})
        for _ in range(MAX_REDIRECTS + 1):
            async with self._send("GET", url, headers) as response:
                location = response.headers.get("Location")
                if response.status not in REDIRECTS or not location:
                    yield response
                    return
            target = _joined(url, location)
            if _origin(target) != _origin(url):
                headers.pop("Authorization", None)
            url = target
        raise WebError(f"more than {MAX_REDIRECTS} redirects", is_forbidden=True)

    @asynccontextmanager
    async def post(
        self, url: str, form: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the answer to a form; WebError if there is none."""
        async with self._send("POST", url, {}, form) as response:
            yield response

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        form: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        parts = _parsed(url)
        self._judge(parts.hostname or "")
        try:
            async with self._session.request(
                method,
                yarl.URL(url, encoded=url.isascii()),  # a signed query must stay as it is
                headers=headers,
                data=form,
                allow_redirects=False,
                ssl=not self.is_insecure(parts.netloc.rpartition("@")[2]),
                proxy=choose_proxy(url, self._environ),
            ) as response:
                yield response
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise _translated(error) from None

    def is_insecure(self, host: str) -> bool:
        """Return whether the certificate of host[:port] is not verified."""
        return "*" in self._insecure or host in self._insecure

    def _judge(self, host: str) -> None:
        """Refuse an address that a proxy would connect to in our place; names it resolves itself.

        Raises:
            WebError: nothing is fetched from there.
        """
        try:
            problem = self._blocked.problem(host)
        except ValueError:
            return  # a name
        if problem:
            raise WebError(problem, is_forbidden=True)

    def _socket(self, address_info: Any) -> socket.socket:  # noqa: ANN401 - as getaddrinfo returns
        family, kind, protocol, _, address = address_info
        if problem := self._blocked.problem(address[0]):
            raise OSError(errno.EACCES, problem)
        return socket.socket(family, kind, protocol)


def _parsed(url: str) -> SplitResult:
    """Return the parts of a URL that can be asked for, which has a host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _no_url() from None
    if parts.scheme not in SCHEMES or not parts.hostname or re.search(UNUSABLE, url):
        raise _no_url()
    return parts


def _joined(url: str, location: str) -> str:
    """Return where a redirect leads."""
    try:
        return urljoin(url, location)
    except ValueError:
        raise _no_url() from None


def _no_url() -> WebError:
    return WebError("expected an http or https URL", is_forbidden=True)


def _origin(url: str) -> tuple[str, str]:
    parts = _parsed(url)
    return parts.scheme, parts.netloc


def _translated(error: Exception) -> WebError:
    """Return the error in our words: those of the library may quote a URL with a password."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return WebError(f"proxy answers {error.status}")
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return WebError("connection was closed before the answer ended", is_temporary=True)
    if isinstance(error, TimeoutError):
        return WebError(f"no connection within {CONNECT_SECONDS:g} s", is_temporary=True)
    if isinstance(error, OSError):
        return _system_error(error)
    if isinstance(error, aiohttp.InvalidURL | ValueError):
        return WebError("URL cannot be used", is_forbidden=True)
    return WebError(f"no HTTP answer: {type(error).__name__}")


def _system_error(error: OSError) -> WebError:
    if isinstance(error, ssl.SSLCertVerificationError):
        cause: BaseException = getattr(error, "certificate_error", error)
        reason = getattr(cause, "verify_message", None) or "cannot be verified"
        return WebError(f"certificate is refused: {reason}")
    cause = getattr(error, "os_error", error)
    if isinstance(cause, ssl.SSLError):
        reason = cause.reason or "failed"
        return WebError(f"TLS: {reason}", speaks_plain=reason in PLAIN_REASONS)
    number = getattr(cause, "errno", None)
    return WebError(
        str(getattr(cause, "strerror", None) or type(cause).__name__).lower(),
        is_temporary=number in TEMPORARY,
        is_forbidden=number in USELESS,
    )


async def receive(response: aiohttp.ClientResponse, file: IO[bytes], limit_bytes: int) -> Content:
    """Return what an answer holds, in a file, up to a limit.

    Raises:
        WebError: it does not arrive. (Only within the context of `get`.)
    """
    file.seek(0)
    file.truncate()
    rest = limit_bytes
    async for piece in response.content.iter_chunked(PIECE_BYTES):
        file.write(piece[:rest])
        rest -= len(piece)
        if rest < 0:
            return Content(file, is_cut=True)
    return Content(file)


async def download(
    web: Web,
    url: str,
    file: IO[bytes],
    *,
    settings: FetchSettings,
    surroundings: Surroundings,
    deadline: float,
) -> Content:
    """Return what a server of modules sends, section 3.6.

    Args:
        web: sends the requests.
        url: http or https.
        file: for the body; what it holds is overwritten.
        settings: attempts and limits.
        surroundings: chance, and how to wait.
        deadline: of all attempts, in the loop's time.

    Raises:
        FetchError: it cannot be had.
    """
    clock = asyncio.get_running_loop().time
    attempts, problem = 0, "no time to fetch it"
    while attempts < settings.attempts:
        pause = http_pause(attempts, surroundings.rng) if attempts else 0.0
        if clock() + pause >= deadline:
            break
        await surroundings.sleep(pause)
        attempts += 1
        until = min(clock() + settings.attempt_seconds, deadline)
        try:
            async with asyncio.timeout_at(until), web.get(url) as response:
                if response.status == OK:
                    return await receive(response, file, settings.max_bytes)
                problem = f"status {response.status}"
                if not is_http_retried(response.status):
                    break
        except TimeoutError:
            problem = "timed out"
        except WebError as error:
            problem = str(error)
            if error.is_forbidden:
                break
    raise FetchError(
        f"wasm module download failed after {attempts} attempts, last error: {problem}"
    )
