"""A server's name that has several addresses. Source: RFC 8305 section 5."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.http.connection.client import connect_soonest
from tests.waiting import until


@contextlib.contextmanager
def listening(*hosts: str) -> Iterator[list[socket.socket]]:
    """Listen on one port of several addresses, where one connection each is taken."""
    with contextlib.ExitStack() as stack:
        port, listeners = 0, []
        for host in hosts:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = stack.enter_context(socket.socket(family))
            listener.bind((host, port))
            port = listener.getsockname()[1]
            listener.listen(0)
            listeners.append(listener)
        yield listeners


def open_sockets() -> int:
    return sum(1 for each in Path("/proc/self/fd").iterdir() if each.is_socket())


@pytest.mark.slow
async def test_an_address_that_is_silent_gives_way_to_the_next() -> None:
    with listening("127.0.0.1", "::1") as (silent, other):
        port = silent.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):  # the last one that is answered
            before = open_sockets()
            with await connect_soonest("localhost", port) as connected:
                assert connected.getpeername() == other.getsockname()
                assert connected.gettimeout() == 0
                await until(lambda: open_sockets() == before + 1)  # that of the silent one goes


async def test_an_address_that_refuses_is_waited_for_no_longer() -> None:
    with (
        listening("::1") as (only,),
        await connect_soonest("localhost", only.getsockname()[1]) as connected,
    ):
        assert connected.getpeername() == only.getsockname()


async def test_a_name_that_could_be_nobodys_is_an_error() -> None:
    with pytest.raises(ValueError, match="label"):
        await connect_soonest(f"{'a' * 64}.svc", 15012)
