"""The proxy as the rest of the agent sees it: tables, readiness, resolv.conf, explanations.

Source: xds-identity-dns.md sections 8.2, 8.3 and 8.8; status-lifecycle.md sections 3.8 and 6.6.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import dns.message
import dns.rcode
import pytest

from agent.dns.files import (
    OTHER_RESOLV_CONF,
    RESOLV_CONF,
    find_resolv_conf,
    follow,
    read_resolv_conf,
)
from agent.dns.messages.run import MAX_READY_BYTES
from agent.dns.resolv_conf import ResolvConf
from agent.dns.run import NOT_READY, serving
from agent.dns.settings import DnsSettings
from agent.errors import SystemRefusedError
from agent.metrics import Metrics
from tests.fakes.dns_messages import EXPLAINED, addresses, reasons, reply_to
from tests.fakes.dns_resolver import (
    DEAD,
    KNOWN,
    KNOWN_IP,
    Asked,
    dns_proxy,
    failing,
    resolver,
)
from tests.fakes.dns_table import external, serialised
from tests.waiting import until

DNS = DnsSettings(enabled=True, port=0, namespace="ns1", domain="ns1.svc.cluster.local")


async def test_a_table_replaces_the_last_one_whole() -> None:
    async with dns_proxy(table=[external("old", "1.1.1.1"), external("both", "1.1.1.1")]) as client:
        assert addresses(await client.ask("both")) == ["1.1.1.1"]

        await client.proxy.replace(
            serialised([external("new", "2.2.2.2"), external("both", "2.2.2.2")])
        )

        assert addresses(await client.ask("new")) == ["2.2.2.2"]
        assert addresses(await client.ask("both")) == ["2.2.2.2"]
        assert (await client.ask("old")).rcode() == dns.rcode.SERVFAIL  # nobody is upstream


async def test_queries_are_answered_while_a_large_table_is_read() -> None:
    """The old table answers until all of the new one was read."""
    large = serialised(external(f"host-{number}", "2.2.2.2") for number in range(20_000))
    seen = []
    async with dns_proxy(table=[external("host-0", "1.1.1.1")]) as client:
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(client.proxy.replace(large))
            while not reading.done():
                seen += addresses(await client.ask("host-0"))
        last = addresses(await client.ask("host-0"))

    assert len(seen) > 5
    assert seen[0] == "1.1.1.1"
    assert last == ["2.2.2.2"]


@pytest.mark.parametrize("table", [b"\x0a\x05abc", b"\xff"])
async def test_what_is_no_table_changes_nothing(table: bytes) -> None:
    async with dns_proxy() as client:
        with pytest.raises(ValueError, match=r"byte|field"):
            await client.proxy.replace(table)

        assert addresses(await client.ask("productpage.")) == ["9.9.9.9"]


async def test_the_pod_is_ready_once_there_is_a_table() -> None:
    async with dns_proxy(table=None) as client:
        before = client.proxy.problem(), await client.proxy.document()
        hosts = [client.proxy.summary()["hosts"]]
        await client.proxy.replace(serialised([external("one", "1.1.1.1")]))
        hosts.append(client.proxy.summary()["hosts"])
        await client.proxy.replace(b"")

        assert before == (NOT_READY, None)
        assert client.proxy.problem() is None
        assert await client.proxy.document() == {"table": {}}
        assert hosts == [None, 1]


async def test_without_a_control_plane_all_names_are_asked_upstream() -> None:
    async with (
        resolver() as upstream,
        dns_proxy(upstream.server, table=None, is_local=True) as client,
    ):
        assert client.proxy.problem() is None
        assert addresses(await client.ask(KNOWN)) == [KNOWN_IP]


async def test_the_wait_for_a_table_may_have_an_end(caplog: pytest.LogCaptureFixture) -> None:
    """N12d."""
    async with resolver() as upstream, dns_proxy(upstream.server, table=None) as client:
        assert (await client.ask(KNOWN)).rcode() == dns.rcode.SERVFAIL
        client.proxy.waive()

        assert client.proxy.problem() is None
        assert addresses(await client.ask(KNOWN)) == [KNOWN_IP]
        await client.proxy.replace(serialised([external("www.bing.com", "1.1.1.1")]))
        assert addresses(await client.ask(KNOWN)) == ["1.1.1.1"]
    assert "ready without it" in caplog.text


async def test_a_table_in_time_leaves_nothing_to_waive(caplog: pytest.LogCaptureFixture) -> None:
    async with dns_proxy() as client:
        client.proxy.waive()

        assert addresses(await client.ask("productpage.")) == ["9.9.9.9"]
    assert "ready without it" not in caplog.text


async def test_the_time_begins_with_the_server() -> None:
    async with serving(DNS._replace(ready_timeout_seconds=0.01), Metrics()) as proxy:
        await until(lambda: not proxy.problem())


async def test_other_nameservers_and_domains_count_at_once() -> None:
    async with resolver() as upstream, dns_proxy(DEAD, cache=True) as client:
        assert (await client.ask(KNOWN)).rcode() == dns.rcode.SERVFAIL
        name = "www.google.com.other.example."
        assert (await client.ask(name)).rcode() == dns.rcode.SERVFAIL

        client.proxy.use(ResolvConf((upstream.server,), "other.example"))

        assert addresses(await client.ask(KNOWN)) == [KNOWN_IP]
        assert addresses(await client.ask(name)) == ["1.1.1.1"]
        assert client.proxy.summary()["nameservers"] == [str(upstream.server)]


async def test_a_file_without_nameservers_leaves_those_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with resolver() as upstream, dns_proxy(upstream.server) as client:
        client.proxy.use(ResolvConf((), "other.example"))

        assert addresses(await client.ask(KNOWN)) == [KNOWN_IP]
        assert addresses(await client.ask("productpage.other.example.")) == ["9.9.9.9"]
    assert "names no nameserver" in caplog.text


async def test_nothing_is_kept_unless_asked_for() -> None:
    async with resolver() as upstream, dns_proxy(upstream.server) as client:
        for _ in range(2):
            await client.ask(KNOWN)

    assert len(upstream.asked) == 2


async def test_answers_can_be_kept() -> None:
    """AGENT_DNS_CACHE."""
    soa = "60 SOA ns.zone. admin.zone. 1 2 3 4 30"

    async def with_soa(asked: Asked) -> list[bytes]:
        if asked.name == KNOWN:
            return [reply_to(asked.wire, f"60 A {KNOWN_IP}").to_wire()]
        rcode = dns.rcode.NXDOMAIN
        return [reply_to(asked.wire, authority=soa, rcode=rcode).to_wire()]

    async with resolver(with_soa) as upstream, dns_proxy(upstream.server, cache=True) as client:
        found = [addresses(await client.ask(name)) for name in (KNOWN, "WWW.bing.com.")]
        again = await client.ask(KNOWN, over="tcp", id=9)
        missing = [(await client.ask("missing.")).rcode() for _ in range(2)]

        assert client.count("dns_upstream_requests_total") == 2
        client.proxy.use(ResolvConf((DEAD,)))
        assert (await client.ask(KNOWN)).rcode() == dns.rcode.SERVFAIL
    assert found == [[KNOWN_IP]] * 2
    assert (again.id, addresses(again)) == (9, [KNOWN_IP])
    assert missing == [dns.rcode.NXDOMAIN] * 2
    assert len(upstream.asked) == 2


async def test_failures_are_not_kept() -> None:
    async with resolver(failing) as upstream, dns_proxy(upstream.server, cache=True) as client:
        for _ in range(2):
            assert (await client.ask(KNOWN)).rcode() == dns.rcode.SERVFAIL

    assert len(upstream.asked) == 2


async def test_an_answer_says_where_it_comes_from() -> None:
    async with (
        resolver(failing) as bad,
        resolver() as good,
        dns_proxy(bad.server, good.server, parallel=True, cache=True) as client,
    ):
        table = await client.ask("productpage.", use_edns=0, options=[EXPLAINED])
        upstream = await client.ask(KNOWN, use_edns=0, options=[EXPLAINED])
        kept = await client.ask(KNOWN, use_edns=0, options=[EXPLAINED])
        client.proxy.use(ResolvConf((bad.server,)))
        nowhere = await client.ask(KNOWN, use_edns=0, options=[EXPLAINED])

    why = "not in the name table"
    assert reasons(table)[0].startswith("name table: alternate name of productpage.ns1.svc")
    assert [reasons(upstream)[0], reasons(upstream)[-1]] == [
        why,
        f"answered by nameserver {good.server}",
    ]
    assert reasons(kept) == [
        why,
        f"from the cache: {good.server} said so 0 s ago, good for 60 s",
    ]
    assert reasons(nowhere) == [
        why,
        f"{bad.server}: SERVFAIL",
        "no nameserver has a good answer",
    ]
    async with dns_proxy() as client:
        nobody = await client.ask(KNOWN, "SRV", use_edns=0, options=[EXPLAINED])
    assert reasons(nobody) == [
        "only addresses (A, AAAA of class IN) are answered from the name table",
        "no nameserver has a good answer",
    ]
    assert all(not dns.message.from_wire(asked.wire).options for asked in good.asked)


async def test_that_there_is_no_table_is_said_too() -> None:
    async with dns_proxy(table=None) as client:
        reply = await client.ask(KNOWN, use_edns=0, options=[EXPLAINED])

    assert reasons(reply) == ["there is no name table yet"]


async def test_more_replies_than_are_kept_ready_are_right_all_the_same() -> None:
    ips = [f"10.0.{number // 256}.{number % 256}" for number in range(1000)]
    async with dns_proxy(table=[external("*.many", *ips)]) as client:
        names = [f"host-{number}.many." for number in range(2 * MAX_READY_BYTES // 50_000)]
        replies = [await client.ask(name, use_edns=0, payload=32000) for name in (*names, names[0])]

    assert {len(addresses(reply)) for reply in replies} == {1000}


async def test_the_resolv_conf_of_this_machine_is_used(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async with serving(DNS, Metrics()) as proxy:
        proxy.warm_up()
        assert proxy.problem() == NOT_READY

    assert "DNS listening addresses=127.0.0.1#" in caplog.text


@pytest.mark.parametrize("module", ["agent.run", "agent.dns.run", "agent.dns.cli"])
def test_the_library_of_messages_is_loaded_when_it_is_needed(module: str) -> None:
    code = f"import sys, {module}; print('dns' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout == "False\n"


def test_an_agent_that_is_the_resolver_has_a_file_of_its_own() -> None:
    assert find_resolv_conf(is_resolver=False) == RESOLV_CONF
    other = OTHER_RESOLV_CONF if OTHER_RESOLV_CONF.exists() else RESOLV_CONF
    assert find_resolv_conf(is_resolver=True) == other


def in_place(path: Path, text: str) -> None:
    path.write_text(text)


def replaced(path: Path, text: str) -> None:
    beside = path.with_name("new")
    beside.write_text(text)
    beside.rename(path)


@pytest.mark.parametrize("change", [in_place, replaced])
@pytest.mark.parametrize("linked", [False, True])
async def test_a_changed_file_is_read_again(
    tmp_path: Path,
    change: Callable[[Path, str], None],
    linked: bool,  # noqa: FBT001 - a parameter
) -> None:
    path = file = tmp_path / "etc" / "resolv.conf"
    path.parent.mkdir()
    if linked:
        file = tmp_path / "run" / "stub.conf"
        file.parent.mkdir()
        path.symlink_to(file)
    file.write_text("one")
    texts: asyncio.Queue[str] = asyncio.Queue()

    async with asyncio.TaskGroup() as tasks, asyncio.timeout(10):
        following = tasks.create_task(follow(path, "none", texts.put_nowait))
        assert await texts.get() == "one"
        for text in ("two", "three"):
            change(file, text)
            assert await texts.get() == text
        file.unlink()
        change(file, "four")
        assert await texts.get() == "four"
        following.cancel()


async def test_a_file_that_is_gone_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "resolv.conf"
    texts: asyncio.Queue[str] = asyncio.Queue()

    async with asyncio.TaskGroup() as tasks, asyncio.timeout(10):
        following = tasks.create_task(follow(path, "one", texts.put_nowait))
        await until(lambda: "nameservers stay as they are" in caplog.text)
        replaced(path.with_name("other"), "another file")
        replaced(path, "one")
        replaced(path, "two")
        assert await texts.get() == "two"
        following.cancel()

    assert caplog.text.count("nameservers stay as they are") == 1


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        SystemRefusedError, match=f"{tmp_path}/none: no such file or directory; DNS"
    ):
        read_resolv_conf(tmp_path / "none")
