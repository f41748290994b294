"""From the control plane to an answer: NDS through the relay. Source: sections 2.6 to 2.8."""

from pathlib import Path

import dns.rcode
import pytest

from agent.xds.discovery import Kind, read_request, write_request
from agent.xds.resources import LISTENER, NAME_TABLE
from tests.fakes.control_plane import control_plane
from tests.fakes.dns_messages import addresses
from tests.fakes.dns_resolver import dns_proxy
from tests.fakes.dns_table import TABLE, external, serialised
from tests.fakes.relay_bench import bench, response


@pytest.mark.parametrize("kind", Kind)
async def test_a_table_comes_through_the_relay(kind: Kind, tmp_path: Path) -> None:
    """X7: a response without resources clears the table, and is acknowledged."""
    async with (
        dns_proxy(table=None) as client,
        control_plane() as plane,
        bench(
            tmp_path,
            plane.address,
            deliver={NAME_TABLE: client.proxy.replace},
            subscribe=(NAME_TABLE,),
        ) as b,
    ):
        before = await client.ask("productpage.")
        await b.client.open(kind).send(write_request(kind, LISTENER))
        stream = await plane.accept()
        asked = [read_request(kind, await stream.receive() or b"") for _ in range(2)]
        table, other = serialised(TABLE), serialised([external("only", "1.1.1.1")])
        answers = []
        found = []
        for nonce, bodies in enumerate([[table], [b"\xff"], [], [table], [other]]):
            await stream.send(response(kind, NAME_TABLE, *bodies, nonce=str(nonce)))
            answers.append(read_request(kind, await stream.receive() or b""))
            found.append(addresses(await client.ask("productpage.")))

    assert before.rcode() == dns.rcode.SERVFAIL
    assert [each.type_url for each in asked] == [LISTENER, NAME_TABLE]
    assert [(each.nonce, each.error is None) for each in answers] == [
        ("0", True),
        ("1", False),
        ("2", True),
        ("3", True),
        ("4", True),
    ]
    assert found == [["9.9.9.9"], ["9.9.9.9"], [], ["9.9.9.9"], []]
