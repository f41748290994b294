"""The status server where addresses are what they are in a pod."""

import textwrap
from pathlib import Path

import pytest

from tests.netns.namespaces import namespace

pytestmark = pytest.mark.root

PRELUDE = """
import asyncio, socket
from pathlib import Path
from urllib.parse import unquote
from agent.status.probes import GrpcProbe, HttpProbe, TcpProbe
from agent.status.settings import ProbeSettings
from tests.fakes.health import SERVING, Health, health_server
from tests.fakes.status import status_server
from tests.fakes.web import Pages, server_context, web_server
from aiohttp import web

"""


def script(code: str) -> str:
    return PRELUDE + textwrap.dedent(code)


def test_only_a_loopback_peer_may_end_the_pod() -> None:
    code = script(
        """
        async def main():
            async with status_server() as status:
                for host in ("10.9.9.1", "fd09::1", "127.0.0.1", "::1"):
                    ended = await status.ask("/quitquitquit", method="POST", host=host)
                    ready = await status.ask("/metrics", host=host)
                    print(host, ended.status, ready.status, status.agent.calls)

        asyncio.run(main())
        """
    )
    with namespace("10.9.9.1/32", "fd09::1/128") as pod:
        lines = pod.python(code).splitlines()

    assert lines == [
        "10.9.9.1 403 200 []",
        "fd09::1 403 200 []",
        "127.0.0.1 200 200 ['quit']",
        "::1 200 200 ['quit', 'quit']",
    ]


@pytest.mark.parametrize(
    ("pod_ip", "source", "caller"),
    [("10.9.9.1", "127.0.0.6", "10.9.9.1"), ("fd09::1", "::6", "fd09::1")],
    ids=["IPv4", "IPv6"],
)
def test_probes_of_every_kind_come_from_the_exempt_address(
    pod_ip: str, source: str, caller: str, tmp_path: Path
) -> None:
    """The pod has both families; the kubelet asks by either."""
    code = script(
        f"""
        PATH = "/app-health/a/livez"
        IP, SOURCE = "{pod_ip}", "{source}"

        async def ask(probe):
            async with status_server(probes=ProbeSettings({{PATH: probe}}, IP, SOURCE)) as status:
                print(type(probe).__name__, (await status.ask(PATH, host="{caller}")).status)

        async def main():
            pages = Pages({{"/": web.Response()}})
            health = Health({{"": SERVING}})
            context = server_context(Path("{tmp_path}"), "http/1.1")
            async with (
                web_server(pages, host=IP) as port,
                web_server(pages, host=IP, tls=context) as tls,
                health_server(health, host=IP) as grpc_port,
            ):
                await ask(HttpProbe("/", port))
                await ask(HttpProbe("/", tls, is_tls=True))
                await ask(TcpProbe(port))
                await ask(GrpcProbe(grpc_port))
            print({{request.remote for request in pages.requests}})
            print(pages.requests[0].host == url(port))
            print(SOURCE in unquote(health.peers[0]))

        def url(port):
            return f"[{pod_ip}]:{{port}}" if ":" in IP else f"{pod_ip}:{{port}}"

        asyncio.run(main())
        """
    )
    with namespace("10.9.9.1/32", "fd09::1/128", "::6/128") as pod:
        lines = pod.python(code).splitlines()

    assert lines == [
        "HttpProbe 200",
        "HttpProbe 200",
        "TcpProbe 200",
        "GrpcProbe 200",
        f"{{'{source}'}}",
        "True",
        "True",
    ]


def test_the_server_listens_without_ipv6() -> None:
    code = script(
        """
        async def main():
            async with status_server(envoy_enabled=False) as status:
                print((await status.ask("/healthz/ready")).status)

        asyncio.run(main())
        """
    )
    with namespace() as pod:
        pod.python("open('/proc/sys/net/ipv6/conf/all/disable_ipv6', 'w').write('1')")
        lines = pod.python(code).splitlines()

    assert lines == ["200"]
