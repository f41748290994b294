"""Who listens, as /proc tells it of real sockets; others on this machine may listen too."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agent.lifecycle.files import ApplicationListeners

LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 0), family=getattr(socket, sys.argv[2])) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=[("127.0.0.1", "AF_INET"), ("::1", "AF_INET6")], ids=["IPv4", "IPv6"])
def application(request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another process that listens, and on which port."""
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN, *request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout
        yield child, int(child.stdout.readline())


def test_an_application_is_there_for_as_long_as_it_listens(
    application: tuple[subprocess.Popen[str], int],
) -> None:
    child, port = application
    listeners = ApplicationListeners(())

    during = listeners.ports([os.getpid()])
    child.communicate()

    assert port in during
    assert port not in listeners.ports([os.getpid()])


def test_a_process_of_the_mesh_is_no_application(
    application: tuple[subprocess.Popen[str], int],
) -> None:
    child, port = application

    assert port not in ApplicationListeners(()).ports([os.getpid(), child.pid])


def test_a_port_of_the_mesh_is_none_whoever_holds_it(
    application: tuple[subprocess.Popen[str], int],
) -> None:
    _, port = application

    assert port not in ApplicationListeners((port,)).ports([os.getpid()])


def test_what_begins_to_listen_later_is_looked_at_then() -> None:
    listeners = ApplicationListeners(())
    listeners.ports([os.getpid()])

    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        assert port not in listeners.ports([os.getpid()])
        assert port in ApplicationListeners(()).ports([])


def test_a_process_that_is_gone_owns_nothing() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()

    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        assert port in ApplicationListeners(()).ports([child.pid])
        assert port not in ApplicationListeners(()).ports([child.pid, os.getpid()])
