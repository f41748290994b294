"""A server's end of TLS 1.2 whose records are made by hand: no library sends what it must not.

Source: RFC 5246 sections 5, 6.3 and 8.1; RFC 5288 section 3.
"""

import hashlib
import hmac
import itertools
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.fakes.control_plane import Pair, write_pair

HANDSHAKE: Final = 22
VERSION: Final = b"\x03\x03"
HELLO_REQUEST: Final = bytes(4)
#: Of AES128-GCM: the client's key, the server's, the client's salt, the server's.
KEY_BYTES, SALT_BYTES = 16, 4
#: Where a hello has its random bytes: after the heads of record and message, and the version.
RANDOM: Final = slice(11, 43)


def server_context(directory: Path, pair: Pair) -> ssl.SSLContext:
    """Return the context of a server that speaks HTTP/2."""
    write_pair(directory, pair)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert-chain.pem", directory / "key.pem")
    context.set_alpn_protocols(["h2"])
    return context


class Records:
    """What a server sends, from its handshake on."""

    def __init__(self, connection: socket.socket, directory: Path, pair: Pair) -> None:
        """Shake hands with a client that has connected."""
        context = server_context(directory, pair)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
        keys = directory / "keys"
        context.keylog_filename = str(keys)
        received, sent = _shake_hands(connection, context)
        secret = bytes.fromhex(keys.read_text().splitlines()[-1].split()[2])
        block = _expand(secret, b"key expansion" + sent[RANDOM] + received[RANDOM])
        material = bytes(itertools.islice(block, 2 * (KEY_BYTES + SALT_BYTES)))
        self._aead = AESGCM(material[KEY_BYTES : 2 * KEY_BYTES])
        self._salt = material[-SALT_BYTES:]
        self._number = 1  # its Finished was the first

    def make(self, kind: int, content: bytes) -> bytes:
        """Return the next record."""
        number = self._number.to_bytes(8, "big")
        self._number += 1
        head = bytes([kind]) + VERSION
        sealed = self._aead.encrypt(
            self._salt + number, content, number + head + len(content).to_bytes(2, "big")
        )
        return head + (len(number) + len(sealed)).to_bytes(2, "big") + number + sealed


def _shake_hands(connection: socket.socket, context: ssl.SSLContext) -> tuple[bytes, bytes]:
    """Return all that a client has sent until then, and the server."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    received = sent = b""
    while True:
        data = connection.recv(65536)
        received += data
        incoming.write(data)
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            is_done = False
        else:
            is_done = True
        data = outgoing.read()
        sent += data
        connection.sendall(data)
        if is_done:
            return received, sent


def _expand(secret: bytes, seed: bytes) -> Iterator[int]:
    """Yield the bytes of the pseudorandom function."""
    step = seed
    while True:
        step = hmac.digest(secret, step, hashlib.sha256)
        yield from hmac.digest(secret, step + seed, hashlib.sha256)
