"""What a real Envoy makes of the drain call, and of an attempt to take it back."""

from pathlib import Path

import pytest

from agent.lifecycle.client import Admin
from agent.lifecycle.drain import drain_target
from tests.envoy.bare_envoy import (
    LOCAL,
    REQUEST,
    connected,
    http_manager,
    listener_ports,
    running,
)

pytestmark = [pytest.mark.envoy, pytest.mark.slow]


def listener(direction: str) -> dict[str, object]:
    """Return a listener that answers for itself."""
    route = {"match": {"prefix": "/"}, "direct_response": {"status": 200}}
    return {
        "name": direction,
        "traffic_direction": direction,
        "address": LOCAL,
        "filter_chains": [{"filters": [http_manager(direction, route)]}],
    }


async def goodbyes(ports: dict[str, int]) -> dict[str, bool]:
    """Return for each listener whether it tells its clients to leave."""
    said = {}
    for name, port in ports.items():
        async with connected(port) as client:
            answer = await client.exchange(REQUEST, b"\r\n\r\n")
        said[name] = b"connection: close" in answer.lower()
    return said


async def test_a_drain_says_goodbye_inbound_only_and_cannot_be_undone(tmp_path: Path) -> None:
    """Cases D13, D20 and D23."""
    listeners = [listener("INBOUND"), listener("OUTBOUND")]
    document = {"admin": {"address": LOCAL}, "static_resources": {"listeners": listeners}}
    with running(tmp_path, document, "--drain-strategy", "immediate") as admin_port:
        admin = Admin("127.0.0.1", admin_port)
        ports = await listener_ports(admin)
        before = await goodbyes(ports)

        await admin.drain(drain_target(is_sidecar=True))
        during = await goodbyes(ports)
        await admin.drain("/healthcheck/ok")
        after = await goodbyes(ports)

    assert before == {"INBOUND": False, "OUTBOUND": False}
    assert during == after == {"INBOUND": True, "OUTBOUND": False}
