"""The kubelet's questions of every kind, and the stand-in for applications that answers them."""

import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from aiohttp import web

from agent.demo.process import Namespace, entered, namespace
from tests.fakes.health import NOT_SERVING, SERVING, Health, health_server
from tests.fakes.web import Pages, server_context, web_server
from tests.pod.cluster import new_directory
from tests.pod.containers import Runtime
from tests.pod.environment import Placed
from tests.pod.image import Image, agent_image, application_image
from tests.pod.objects import Exec, Grpc, Handler, HttpGet, Sleep, TcpSocket, parse_workload
from tests.pod.probing import Verdict, ask

LOOPBACK = "127.0.0.1"


async def nothing(_: Sequence[str]) -> tuple[int, str]:
    raise AssertionError("nothing is to be run")


async def asked(handler: Handler, seconds: float = 5) -> Verdict:
    return await ask(handler, LOOPBACK, nothing, timeout_seconds=seconds)


@pytest.mark.parametrize(
    ("status", "passed"), [(200, True), (302, True), (404, False), (503, False)]
)
async def test_http_passes_from_200_to_399(status: int, *, passed: bool) -> None:
    headers = {"Location": "/elsewhere"} if status == 302 else {}
    pages = Pages({"/ready": web.Response(status=status, text="body", headers=headers)})
    async with web_server(pages) as port:
        verdict = await asked(HttpGet(port, "ready", headers=(("X-Probe", "yes"),)))

    assert verdict.passed == passed
    assert verdict.said.startswith(str(status))
    (request,) = pages.requests
    assert request.headers["User-Agent"] == "kube-probe/1.33"
    assert request.headers["X-Probe"] == "yes"
    assert request.headers["Connection"] == "close"


async def test_https_trusts_anybody(tmp_path: Path) -> None:
    pages = Pages({"/": web.Response()})
    async with web_server(pages, tls=server_context(tmp_path)) as port:
        assert (await asked(HttpGet(port, scheme="HTTPS"))).passed
        assert not (await asked(HttpGet(port))).passed


async def test_tcp_passes_where_somebody_listens() -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        assert (await asked(TcpSocket(port))).passed

    assert "ConnectionRefusedError" in (await asked(TcpSocket(port))).said


async def test_silence_is_no_answer() -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]

        verdict = await asked(HttpGet(port), 0.05)

    assert verdict == Verdict(passed=False, said="nothing within 0.05 s")


@pytest.mark.parametrize(
    ("service", "passed"), [("", True), ("good", True), ("bad", False), ("unknown", False)]
)
async def test_grpc_passes_while_the_service_serves(service: str, *, passed: bool) -> None:
    health = Health({"": SERVING, "good": SERVING, "bad": NOT_SERVING})
    async with health_server(health) as port:
        assert (await asked(Grpc(port, service))).passed == passed


@pytest.mark.parametrize(("code", "passed"), [(0, True), (3, False)])
async def test_a_program_passes_by_its_exit_code(code: int, *, passed: bool) -> None:
    async def run(argv: Sequence[str]) -> tuple[int, str]:
        return code, " ".join(argv)

    verdict = await ask(Exec(("is", "it")), LOOPBACK, run, timeout_seconds=1)

    assert verdict == Verdict(passed, f"exit {code}: is it")


async def test_a_pause_passes() -> None:
    assert (await asked(Sleep(0))).passed


HANDLERS: dict[str, Handler] = {
    "http": HttpGet(80, "/x"),
    "https": HttpGet(443, scheme="HTTPS"),
    "grpc": Grpc(9000),
    "tcp": TcpSocket(93),
    "exec": Exec(("cat", "/tmp/healthy")),  # noqa: S108 - in a container
}


@pytest.fixture
def place() -> Iterator[tuple[Path, Namespace, Image]]:
    with new_directory() as directory, namespace() as inside:
        image = application_image(agent_image(directory / "agent"), directory / "application")
        with entered(inside.holder):
            yield directory, inside, image


@pytest.mark.root
@pytest.mark.slow
async def test_the_stand_in_answers_as_long_as_it_is_well(
    place: tuple[Path, Namespace, Image],
) -> None:
    directory, inside, image = place
    ports = "80=http 443=https 9000=grpc 93=tcp"
    image = image._replace(environ={**image.environ, "APPLICATION_PORTS": ports})
    spec = {
        "containers": [{"name": "web", "image": "web"}],
        "automountServiceAccountToken": False,
    }
    workload = parse_workload({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    placed = Placed("p", "u", workload, LOOPBACK, "node", LOOPBACK, {})
    runtime = Runtime(placed, inside.holder, LOOPBACK, lambda _: image, directory, {})
    process = await runtime.start(workload.containers[0], 0)

    async def passing() -> set[str]:
        verdicts = {
            kind: await ask(handler, LOOPBACK, process.run, timeout_seconds=5)
            for kind, handler in HANDLERS.items()
        }
        return {kind for kind, verdict in verdicts.items() if verdict.passed}

    assert await passing() == set(HANDLERS)
    await process.toggle_health()
    assert await passing() == set()
    await process.toggle_health()
    assert await passing() == set(HANDLERS)
    process.signal(signal.SIGTERM)
    assert await process.wait() == 0
