"""A TLS client on the streams of asyncio.

asyncio's own needs the ssl module in every process, which is 1.4 MB of memory of its own and 4 MB
of libraries; here it is loaded by the first connection that needs it (process.py).

Source: performance.md, order and imports; status-lifecycle.md section 5.4.
"""

import asyncio
import ssl
from functools import lru_cache
from typing import Final

HANDSHAKE_SECONDS: Final = 10.0  # status-lifecycle.md 5.4
READ_BYTES: Final = 64 * 1024
ANY_STRENGTH: Final = "DEFAULT:@SECLEVEL=0"


@lru_cache(maxsize=4)
def trusting_context(*protocols: str) -> ssl.SSLContext:
    """Return the context of HTTPS probes: like the kubelet, it believes any certificate.

    Args:
        protocols: offered by ALPN, the preferred one first; none: no ALPN.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ANY_STRENGTH)
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


class TlsStream:
    """One connection; to be read and written by one task at a time."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        context: ssl.SSLContext,
        server_name: str,
    ) -> None:
        """Prepare the client's end; `server_name` is for SNI, '' sends none."""
        self._reader = reader
        self._writer = writer
        self._is_full = False
        self._received = ssl.MemoryBIO()
        self._unsent = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._received, self._unsent, server_hostname=server_name or None
        )

    @property
    def protocol(self) -> str:
        """Return what was agreed on by ALPN, '' if nothing."""
        return self._object.selected_alpn_protocol() or ""

    @property
    def may_have_more(self) -> bool:
        """Whether something that came may not have been read yet."""
        return self._is_full or self._received.pending > 0 or self._object.pending() > 0

    async def handshake(self) -> None:
        """Return when the connection is secured.

        Raises:
            OSError: it cannot be, or not in time; the text says why.
        """
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                while not self._shake():
                    await self._receive()
        except TimeoutError:
            raise OSError(f"no TLS handshake within {HANDSHAKE_SECONDS:g} s") from None
        finally:
            self._send()

    def write(self, data: bytes) -> None:
        """Send some bytes, in the background."""
        self._object.write(data)
        self._send()

    async def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`; none at the end.

        Raises:
            OSError: what came is no TLS, or the peer has refused the connection.
        """
        while True:
            try:
                return self._object.read(size)
            except ssl.SSLWantReadError:
                self._send()
                await self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""  # whether that is too early is for HTTP to say
            except ssl.SSLError as error:
                raise _explained(error) from error

    def _shake(self) -> bool:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return False
        except ssl.SSLError as error:
            raise _explained(error) from error
        return True

    async def _receive(self) -> None:
        data = await self._reader.read(READ_BYTES)
        self._is_full = len(data) == READ_BYTES
        if data:
            self._received.write(data)
        else:
            self._received.write_eof()

    def _send(self) -> None:
        if data := self._unsent.read():
            self._writer.write(data)


def _explained(error: ssl.SSLError) -> OSError:
    """Return the error without OpenSSL's number, which is none of the system's."""
    if isinstance(error, ssl.SSLEOFError):
        return OSError("connection closed during the TLS handshake")
    return OSError(str(error.strerror or error))
