"""`agent dns lookup`: where an answer comes from."""

import asyncio
import sys
from typing import NamedTuple

import pytest

from tests.fakes.dns_resolver import KNOWN, KNOWN_IP, LOOPBACK, dns_proxy, many, resolver

PRODUCTPAGE = "productpage.ns1.svc.cluster.local (Kubernetes service, productpage in ns1)"


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    lines: list[str]
    error: str


async def agent_dns(*words: str, address: str) -> Done:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "agent", "dns", *words),
        env={"DNS_PROXY_ADDR": address, "DNS_FORWARD_TIMEOUT": "2s"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await process.communicate()
    return Done(process.returncode or 0, out.decode().splitlines(), error.decode())


@pytest.mark.parametrize("host", [LOOPBACK, "[::1]", "localhost", ""])
async def test_a_name_of_the_table_names_its_service(host: str) -> None:
    async with dns_proxy() as client:
        done = await agent_dns("lookup", "productpage.ns1", address=f"{host}:{client.port}")

    assert done == Done(
        0,
        [
            "productpage.ns1. A: NOERROR, 1 record",
            "  productpage.ns1. 30 IN A 9.9.9.9",
            "why",
            f"  name table: alternate name of {PRODUCTPAGE}",
        ],
        "",
    )


async def test_a_name_from_upstream_names_the_nameserver() -> None:
    async with resolver() as upstream, dns_proxy(upstream.server) as client:
        done = await agent_dns("lookup", KNOWN, "a", address=f"{LOOPBACK}:{client.port}")

    assert done.code == 0
    assert done.lines == [
        f"{KNOWN} A: NOERROR, 1 record",
        f"  {KNOWN} 60 IN A {KNOWN_IP}",
        "why",
        "  not in the name table",
        f"  answered by nameserver {upstream.server}",
    ]


async def test_an_answer_that_was_cut_is_asked_for_over_tcp() -> None:
    async with resolver(many) as upstream, dns_proxy(upstream.server) as client:
        done = await agent_dns("lookup", KNOWN, address=f"{LOOPBACK}:{client.port}")

    assert done.lines[0] == f"{KNOWN} A: NOERROR, 400 records"
    assert {asked.over for asked in upstream.asked} == {"udp", "tcp"}


async def test_another_server_gives_no_reason() -> None:
    async with resolver() as other:
        done = await agent_dns("lookup", KNOWN, address=f"{LOOPBACK}:{other.server.port}")

    assert done.lines[-1] == "  none given: whoever answered is not this agent's DNS proxy"


@pytest.mark.parametrize(
    ("words", "address", "problem"),
    [
        (("lookup", "a"), "127.0.0.1:9", "127.0.0.1#9: connection refused; it listens where ISTIO"),
        (("lookup", "a"), "nowhere", "DNS_PROXY_ADDR='nowhere': expected host:port"),
        (("lookup", "a..b"), "", "'a..b' 'A': "),
        (("lookup", "a", "no-type"), "", "'a' 'no-type': "),
        (("lookup",), "", "dns lookup: expected lookup NAME [TYPE]"),
        (("look", "a"), "", "dns look a: expected lookup NAME [TYPE]"),
        (("--wrong",), "", "unknown flag --wrong"),
    ],
)
async def test_what_goes_wrong_is_one_line(
    words: tuple[str, ...], address: str, problem: str
) -> None:
    done = await agent_dns(*words, address=address)

    assert (done.code, done.lines) == (255, [])
    assert done.error.startswith("Error: ")
    assert problem in done.error
    assert done.error.count("\n") == 1


@pytest.mark.parametrize("words", [(), ("--help",), ("lookup", "--help")])
async def test_help_is_printed(words: tuple[str, ...]) -> None:
    done = await agent_dns(*words, address="")

    assert done.code == 0
    assert any("agent dns lookup NAME [TYPE]" in line for line in done.lines)
