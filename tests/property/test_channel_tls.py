"""TLS over memory, against that of the ssl module. Source: section 2.2."""

import contextlib
import ssl
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.channel.policies import POLICIES
from agent.channel.tls import Context, Session, TlsError
from tests.fakes.control_plane import SERVER_NAME, Authority
from tests.fakes.tls_records import server_context as h2_context

AUTHORITY: Final = Authority()
POLICY: Final = st.sampled_from(["fips-140-2", "fips-140-3"])
CHUNKS: Final = st.lists(st.binary(min_size=1, max_size=40_000), max_size=5)


@cache
def client_context(policy: str) -> Context:
    return Context(POLICIES[policy], AUTHORITY.root)


@cache
def server_context() -> ssl.SSLContext:
    with tempfile.TemporaryDirectory() as directory:
        return h2_context(Path(directory), AUTHORITY.issue(SERVER_NAME))


class Server:
    """The other end, by the ssl module."""

    def __init__(self) -> None:
        self.received, self.unsent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = server_context().wrap_bio(self.received, self.unsent, server_side=True)

    def handshake(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read(self) -> bytes:
        data = b""
        while True:
            try:
                data += self.tls.read()
            except ssl.SSLWantReadError:
                return data


def connected(policy: str) -> tuple[Session, Server]:
    client, server = Session(client_context(policy), SERVER_NAME), Server()
    is_done = (False, False)
    while not all(is_done):
        is_done = (is_done[0] or client.handshake(), is_done[1])
        server.received.write(client.take())
        is_done = (is_done[0], is_done[1] or server.handshake())
        client.receive(server.unsent.read())
    return client, server


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@given(policy=POLICY, up=CHUNKS, down=CHUNKS, size=st.integers(1, 5000))
def test_what_is_written_is_read_however_it_is_cut(
    policy: str, up: list[bytes], down: list[bytes], size: int
) -> None:
    client, server = connected(policy)
    for chunk in up:
        client.write(chunk)
    for chunk in down:
        server.tls.write(chunk)
    server.received.write(client.take())

    read = b""
    for piece in pieces(server.unsent.read(), size):
        client.receive(piece)
        read += client.read() or b""

    assert read == b"".join(down)
    assert server.read() == b"".join(up)


@given(policy=POLICY, down=CHUNKS)
def test_an_end_comes_after_all_that_was_written(policy: str, down: list[bytes]) -> None:
    client, server = connected(policy)
    for chunk in down:
        server.tls.write(chunk)
    with pytest.raises(ssl.SSLWantReadError):
        server.tls.unwrap()
    client.receive(server.unsent.read())

    read = [client.read() for _ in range(2)]

    assert [data for data in read if data] == ([b"".join(down)] if down else [])
    assert read[-1] is None


@given(policy=st.sampled_from(sorted(POLICIES)), answer=st.binary(max_size=500))
def test_what_is_no_answer_ends_the_handshake_or_is_not_enough(policy: str, answer: bytes) -> None:
    client = Session(client_context(policy), SERVER_NAME)
    assert not client.handshake()
    client.receive(answer)

    with contextlib.suppress(TlsError):
        assert not client.handshake()
    with contextlib.suppress(TlsError):
        assert not client.read()


@given(policy=POLICY, down=st.binary(min_size=1, max_size=1000), data=st.data())
def test_a_changed_byte_is_noticed(policy: str, down: bytes, data: st.DataObject) -> None:
    client, server = connected(policy)
    client.read()  # tickets of TLS 1.3
    server.tls.write(down)
    record = bytearray(server.unsent.read())
    record[data.draw(st.integers(5, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    client.receive(bytes(record))

    with pytest.raises(TlsError):
        client.read()
    with pytest.raises(TlsError):
        client.read()
