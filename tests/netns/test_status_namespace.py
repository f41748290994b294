"""The status server where addresses are what they are in a pod."""

import textwrap

import pytest

from tests.netns.namespaces import namespace

pytestmark = pytest.mark.root

PRELUDE = """
import asyncio, socket
from agent.status.probes import GrpcProbe, HttpProbe, TcpProbe
from agent.status.settings import ProbeSettings
from tests.fakes.health import SERVING, Health, health_server
from tests.fakes.status import status_server
from tests.fakes.web import Pages, web_server
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


def test_probes_of_an_ipv6_pod_come_from_the_exempt_address() -> None:
    code = script(
        """
        PATH = "/app-health/a/livez"

        async def main():
            pages = Pages({"/": web.Response()})
            async with web_server(pages, host="fd09::1") as port:
                for probe in (HttpProbe("/", port), TcpProbe(port)):
                    probes = ProbeSettings({PATH: probe}, "fd09::1", "::6")
                    async with status_server(probes=probes) as status:
                        answer = await status.ask(PATH, host="::1")
                        print(answer.status)
            request = pages.requests[0]
            print(request.remote, request.headers["Host"].startswith("[::1]:"))

        asyncio.run(main())
        """
    )
    with namespace("fd09::1/128", "::6/128") as pod:
        lines = pod.python(code).splitlines()

    assert lines == ["200", "200", "::6 True"]


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
