"""SDS servers of others. Source: xds-identity-dns.md section 4.2; 11.3, T-A7 to T-A9."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from agent.errors import AgentError, SystemRefusedError
from agent.identity.modes import FILES_SOCKET, OWN_SOCKET
from agent.identity.sockets.client import Found, is_served, look
from agent.process import identify
from agent.proxy_flags import PROXY_FLAGS
from agent.settings import World, parse_settings
from bootstrap.node import build_node
from iptables.flags import parse_flags

WORKLOADS = "var/run/secrets/workload-spiffe-uds"
CREDENTIALS = "var/run/secrets/credential-uds"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in a container's root directory, as the agent does; the paths of sockets are short."""
    for name in (WORKLOADS, CREDENTIALS):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)


@contextlib.contextmanager
def sds_server(path: Path) -> Iterator[None]:
    """Run somebody else's gRPC server."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - beside its use

    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def listener(path: Path, behave: Callable[[socket.socket], None] | None) -> Iterator[list[int]]:
    """Listen without being a gRPC server; yield the list whose length counts connections."""
    seen: list[int] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    seen.append(1)
                    with connection:
                        assert behave
                        connection.recv(65536)  # or the client could not even send
                        behave(connection)

        thread = threading.Thread(target=accept)
        if behave:
            thread.start()
        try:
            yield seen
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            if behave:
                thread.join()


def dead(path: Path) -> None:
    """Leave a socket behind as one does who is killed."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def test_without_sockets_we_are_in_charge() -> None:
    assert look("socket") == Found(workload=False, credential=False)


def test_somebody_elses_server_is_left_alone() -> None:
    """T-A7."""
    path = Path(WORKLOADS) / "socket"
    with sds_server(path):
        assert look("socket") == Found(workload=True, credential=False)
        assert path.exists()
        assert look("socket").workload


def test_it_may_have_a_name_of_its_own() -> None:
    with sds_server(Path(WORKLOADS) / "spire.sock"), sds_server(Path(CREDENTIALS) / "socket"):
        assert look("spire.sock") == Found(workload=True, credential=True)


def test_a_name_of_its_own_without_a_server_is_an_error() -> None:
    """T-A9."""
    with pytest.raises(
        AgentError,
        match=r"non-default SDS socket path: \./var/run/.*/spire\.sock but no socket found",
    ):
        look("spire.sock")


@pytest.mark.parametrize("name", [WORKLOADS, CREDENTIALS])
def test_a_dead_socket_makes_way(name: str) -> None:
    """T-A8."""
    path = Path(name) / "socket"
    dead(path)

    assert look("socket") == Found()
    assert not path.exists()


def test_a_file_is_no_socket() -> None:
    path = Path(WORKLOADS) / "socket"
    path.touch()

    assert not is_served(str(path))
    assert path.exists()


@pytest.mark.parametrize(
    "behave",
    [
        lambda _: None,
        lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        lambda connection: connection.sendall(b"short"),
    ],
    ids=["closes", "speaks HTTP/1.1", "breaks off"],
)
def test_a_server_that_does_not_speak_grpc_is_looked_at_again_and_removed(
    behave: Callable[[socket.socket], None],
) -> None:
    """D-23: not after a single look."""
    path = Path(WORKLOADS) / "socket"
    with listener(path, behave) as seen:
        assert not is_served(str(path))

    assert len(seen) == 3
    assert not path.exists()


@pytest.mark.slow
def test_a_server_that_hangs_is_no_server() -> None:
    """A bare connect would succeed: the kernel's queue takes it."""
    path = Path(WORKLOADS) / "socket"
    with listener(path, None):
        assert not is_served(str(path))

    assert not path.exists()


def test_a_server_that_comes_back_in_time_is_kept() -> None:
    """D-23."""
    path = Path(WORKLOADS) / "socket"
    settings_frame = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    answers = iter((b"", b"", settings_frame))
    with listener(path, lambda connection: connection.sendall(next(answers))):
        assert is_served(str(path))

    assert path.exists()


def test_what_cannot_be_removed_is_named() -> None:
    (Path(WORKLOADS) / "socket").mkdir()

    with pytest.raises(
        SystemRefusedError, match=r"nobody answers there .*, and it cannot be removed"
    ):
        look("socket")


@pytest.mark.parametrize("served", [False, True])
def test_envoy_and_the_control_plane_learn_who_is_in_charge(served: bool) -> None:  # noqa: FBT001 - a parameter
    """Section 4.2: metadata, and the agent's own socket beside the other one."""
    environ = {"POD_NAME": "web-1", "POD_NAMESPACE": "shop", "INSTANCE_IP": "10.0.0.5"}
    world = World(None, None, None, interface_addresses=(), cpus=1)
    settings, _ = parse_settings(parse_flags(PROXY_FLAGS, ["sidecar"]), environ, world)
    with contextlib.ExitStack() as stack:
        if served:
            for name in (WORKLOADS, CREDENTIALS):
                stack.enter_context(sds_server(Path(name) / "socket"))
        settings, mode = identify(settings)
    node, _ = build_node(settings.node)

    assert mode.files_only is served
    assert mode.socket_path == (FILES_SOCKET if served else OWN_SOCKET)
    given = {key: node.metadata.get(key) for key in ("credential", "file-credential")}
    assert given == dict.fromkeys(given, "true" if served else None)
