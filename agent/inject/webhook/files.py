"""The webhook's files: its certificate, and all others that change while it runs."""

import asyncio
import hashlib
import logging
import os
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from agent.errors import SettingsError
from agent.inotify.files import (
    CLOSE_WRITE,
    CREATE,
    DELETE,
    MOVED_FROM,
    MOVED_TO,
    Inotify,
)

log = logging.getLogger(__name__)

EVENTS: Final = CLOSE_WRITE | CREATE | DELETE | MOVED_FROM | MOVED_TO
#: From the first event to the reading: a mounted volume changes in several steps.
DEBOUNCE_SECONDS: Final = 0.1
#: Looks at the files without any event: links to links change unseen.
LOOK_SECONDS: Final = 30.0


class Certificate:
    """The server's certificate: the newest pair of files that fit each other.

    Each handshake takes the context of that moment, so connections go on over a change.
    """

    def __init__(self, certificate: str, key: str) -> None:
        """Load the pair.

        Raises:
            SettingsError: the files cannot be read, or do not fit each other.
        """
        self._paths = (certificate, key)
        self._current = self._load()
        self.context = self._load()
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Take the files as they are now.

        Raises:
            SettingsError: they cannot be used; the pair before them stays.
        """
        self._current = self._load()

    def _choose(self, connection: Any, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ANN401 - of ssl
        del name, context
        connection.context = self._current

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.sslobject_class = _Connection
        certificate, key = self._paths
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            said = str(reason).lower().replace("_", " ")
            problem = (
                f"certificate {certificate} with key {key}: {said}; "
                "--tlsCertFile and --tlsKeyFile name a pair of PEM files"
            )
            raise SettingsError([problem]) from error
        return context


class _Connection(ssl.SSLObject):
    """Says why there is no connection: asyncio keeps it to itself."""

    def do_handshake(self) -> None:
        """Go on with the handshake."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).lower().replace("_", " ")
            hint = "; expected TLS: the webhook is https" if reason == "http request" else ""
            log.warning("refused a handshake reason=%r", f"{reason}{hint}")
            raise


def _no_password() -> str:
    """Answer OpenSSL, which would ask the terminal for the password of a key."""
    raise ValueError("expected a key without a password")


def digest(paths: Iterable[str]) -> bytes:
    """Return what changes whenever the content of one of the files does."""
    found = hashlib.sha256()
    for path in paths:
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            data = str(error.errno).encode()
        found.update(len(data).to_bytes(8))
        found.update(data)
    return found.digest()


class Followed:
    """Files whose content is followed from now on: make it before they are read."""

    def __init__(self, *paths: str) -> None:
        """Look at the files; '' is none."""
        self._paths = [path for path in paths if path]
        self._known = digest(self._paths)

    async def changes(self) -> AsyncIterator[None]:
        """Yield whenever the content of one of the files has changed."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        with ExitStack() as stack:
            inotify = _inotify(stack)
            if inotify:
                loop.add_reader(inotify.fileno(), _drain, inotify, event)
                stack.callback(loop.remove_reader, inotify.fileno())
            while self._paths:
                if inotify:
                    _watch(inotify, self._paths)
                current = digest(self._paths)
                if current != self._known:
                    self._known = current
                    yield
                await _some_event(event)


def _inotify(stack: ExitStack) -> Inotify | None:
    """Return watches, None where the kernel gives no more: then files are only looked at."""
    try:
        inotify = Inotify()
    except OSError as error:
        log.warning("files are looked at only every %g seconds reason=%r", LOOK_SECONDS, str(error))
        return None
    stack.callback(inotify.close)
    return inotify


def _drain(inotify: Inotify, event: asyncio.Event) -> None:
    inotify.read()
    event.set()


def _watch(inotify: Inotify, paths: Iterable[str]) -> None:
    """Watch the directories that the paths, and what they link to, stand in."""
    for path in paths:
        for place in {os.path.dirname(path) or ".", os.path.dirname(os.path.realpath(path))}:  # noqa: PTH120 - of text
            try:
                inotify.add(place, EVENTS)
            except OSError:  # it is gone; the next look may find it again
                continue


async def _some_event(event: asyncio.Event) -> None:
    """Return when something has happened and settled, or after a while."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            await event.wait()
    except TimeoutError:
        return
    await asyncio.sleep(DEBOUNCE_SECONDS)
    event.clear()
