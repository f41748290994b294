"""What a person sees of a whole pod with a real Envoy, in the states that bring one to look."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from agent.demo.run import RunningPod
from agent.http.client import fetch
from tests.browser.forward import forwarding
from tests.browser.looking import STATUS_PORT, looking_at, looking_into
from tests.browser.pods import MARKUP, LocalPod, local_pod, served_pod
from tests.envoy.chaos import Plane

DASH = "\N{EN DASH}"
pytestmark = [pytest.mark.browser, pytest.mark.root, pytest.mark.envoy, pytest.mark.slow]


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalPod]:
    with local_pod(tmp_path) as made:
        yield made


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[RunningPod, Plane]]:
    with served_pod(tmp_path) as made:
        yield made


async def test_a_pod_that_is_ready(local: LocalPod, chromium: str) -> None:
    local.probe()
    async with looking_into(chromium, local.made.inside) as look:
        ready = await look.reads("#readiness", "✓ Ready", "served by this agent itself")
        synced = await look.reads("#xds", "cds", "lds", "✓ SYNCED")
        certificates = await look.reads("#certificates", "h 59 min left", "Trust bundle: 1 cert")
        failed = await look.reads("#probes", "✕ 500", "connection refused")
        assert await asyncio.to_thread(local.made.serve) == "listening"
        await asyncio.to_thread(local.probe)
        await look.reads("#probes", "✓ 200")
        ends = await look.reads("#drain", "Nobody has asked for an end")
        activity = await look.reads("#activity", "probes of the application 1 1 2")
        title = await look.tab.evaluate("document.title")

    assert "not captured" in ready  # DNS
    assert "STALE" not in synced
    assert "spiffe://cluster.local/ns/default/sa/default" in certificates
    assert "in 1" in certificates.partition("Renewal")[2][:6]  # 12 hours or a bit less
    assert "HTTP :8080 /readyz" in failed
    assert "+5 s stop" in ends
    assert "pushes" in activity
    assert title == f"Ready {DASH} hello-5d4b8f6c7d-x2x9k"


async def test_a_listener_that_envoy_refuses_is_shown_with_its_reason_as_text(
    local: LocalPod, chromium: str
) -> None:
    async with looking_into(chromium, local.made.inside) as look:
        await look.reads("#readiness", "✓ Ready")
        await asyncio.to_thread(local.push_refused)
        refused = await look.reads("#xds", "✕ STALE, refused", "no filter chains specified")
        await look.reads("#readiness", MARKUP)
        counted = await look.reads("#activity", "▼ 1 refused, 1 lately")
        images = await look.tab.evaluate("document.images.length")
        title = await look.tab.evaluate("document.title")
        await asyncio.to_thread(local.mend)
        mended = await look.reads("#xds", "a later one was sent")

    assert MARKUP in refused
    assert counted.index("pushes") < counted.index("▼")
    assert (images, title.partition(" ")[0]) == (0, "Ready")
    assert "✕" not in mended


async def test_why_a_pod_is_not_ready_and_what_becomes_of_its_control_plane(
    served: tuple[RunningPod, Plane], chromium: str
) -> None:
    made, plane = served
    async with looking_into(chromium, made.inside) as look:
        reason = await look.reads("#readiness", "✕ Not ready", "Connection refused")
        said = await look.tab.text("#said")
        title = await look.tab.evaluate("document.title")
        await asyncio.to_thread(plane.be, "good", "0")
        ready = await look.reads("#readiness", "✓ Ready", "✓ connected")
        await look.reads("#xds", "✓ SYNCED")
        await asyncio.to_thread(plane.kill)
        await look.reads("#readiness", "✓ Ready", "has no stream to the agent")
        kept = await look.reads("#xds", "Envoy keeps what it accepted")

    assert "config not received from XDS server (is Istiod running?): cds updates: 0" in reason
    assert "cluster_manager.cds.update_success" in reason
    assert "10.244.7.1:15012" in reason
    assert said.startswith("Not ready: config not received")
    assert title.startswith(f"Not ready {DASH} ")
    assert "Last not ready" in ready
    assert "✓ SYNCED" in kept


async def test_a_pod_that_drains_and_ends(served: tuple[RunningPod, Plane], chromium: str) -> None:
    made, plane = served
    await asyncio.to_thread(plane.be, "good", "0")
    async with forwarding(made.inside, STATUS_PORT) as port, looking_at(chromium, port) as look:
        await look.reads("#readiness", "✓ Ready")
        made.terminate()
        await look.reads("#readiness", "▲ Ending, and so not ready")
        ends = await look.reads("#drain", "draining until then (received signal: terminated")
        made.terminate()  # a second signal hurries
        lost = await look.reads("#lost", "No connection to the agent", "probably gone")
        look.check(is_cut_off=True)

    assert "SIGTERM ✓ done" in ends
    assert "drain ✓ done" in ends
    assert "stop ▲ in 5" in ends
    assert "(AGENT_TERMINATION_GRACE_PERIOD)" in ends
    assert "Below is what was known" in lost


async def test_a_port_forward_that_ends_and_is_started_again(
    served: tuple[RunningPod, Plane], chromium: str
) -> None:
    made, plane = served
    await asyncio.to_thread(plane.be, "good", "0")
    async with AsyncExitStack() as stack:
        async with forwarding(made.inside, STATUS_PORT) as port:
            look = await stack.enter_async_context(looking_at(chromium, port))
            await look.reads("#readiness", "✓ Ready")
            await fetch("POST", "127.0.0.1", port, "/drain", timeout_seconds=10)
            await look.reads("#drain", "▲ Draining: asked by /drain")
        lost = await look.reads("#lost", "✕ No connection to the agent", "port-forward again")
        last = await look.tab.text("#readiness")
        async with forwarding(made.inside, STATUS_PORT, own_port=port):
            await look.reads("#link", "✓ live")
            is_hidden = await look.tab.evaluate("document.querySelector('#lost').hidden")
            look.check(is_cut_off=True)

    assert "nothing answers on this port" in lost
    assert "✓ Ready" in last
    assert is_hidden is True
