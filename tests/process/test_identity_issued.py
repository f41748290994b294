"""Certificates from a CA, over TLS, to Envoy's socket. Source: sections 4.7, 5.3 and 6; 11.3."""

import asyncio
from pathlib import Path
from typing import Final

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from agent.identity.keys import KeySettings
from agent.protobuf.wire import message
from tests.fakes.ca import CsrCall
from tests.fakes.clock import FakeClock
from tests.fakes.identity import SPIFFE_ID
from tests.fakes.issuing import (
    DAY,
    OTHER,
    ROOT,
    issuing,
    on,
    refuse,
)

#: Their union, as it is served.
BOTH: Final = "\n".join(sorted((OTHER.pem.strip(), ROOT.pem.strip())))


async def test_key_chain_and_roots_are_served(tmp_path: Path) -> None:
    """T-A1, T-K1, T-K3."""
    async with issuing(tmp_path, authority={"signer": "clusterissuers/x"}) as (bench, ca):
        reply = await bench.client.open().fetch("default", "ROOTCA")

        leaf = x509.load_pem_x509_certificate(reply.chain())
        key = serialization.load_pem_private_key(reply.key(), None)
        assert key.public_key() == leaf.public_key()
        assert reply.chain().decode().endswith(ROOT.pem)
        assert reply.roots().decode() == ROOT.pem.strip()
        (asked,) = ca.calls
        assert asked.metadata["authorization"] == "Bearer a-token"
        assert asked.metadata["clusterid"] == "Kubernetes"
        assert asked.ttl_seconds == DAY
        assert asked.signer == "clusterissuers/x"
        assert bench.metric('num_outgoing_requests{request_type="csr"}') == 1
        assert bench.metric('num_failed_outgoing_requests{request_type="csr"}') is None
        left = bench.metric('cert_expiry_seconds{resource_name="default"}')
        assert left is not None
        assert DAY - 100 < left <= DAY + 1
        assert bench.identity.problem() is None


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (KeySettings(SPIFFE_ID), rsa.RSAPublicKey),
        (KeySettings(SPIFFE_ID, elliptic=True, p384=True, pkcs8=True), ec.EllipticCurvePublicKey),
    ],
)
async def test_keys_are_as_configured(tmp_path: Path, key: KeySettings, kind: type) -> None:
    """T-A2."""
    async with issuing(tmp_path, change=lambda made: made._replace(key=key)) as (bench, _):
        reply = await bench.client.open().fetch("default")

    assert isinstance(x509.load_pem_x509_certificate(reply.chain()).public_key(), kind)


async def test_many_who_need_it_cause_one_request(tmp_path: Path) -> None:
    """R-11."""
    go_on = asyncio.Event()

    async def respond(call: CsrCall) -> list[str]:
        await go_on.wait()
        return ROOT.answer(call)

    async with issuing(tmp_path, respond) as (bench, ca):
        calls = [bench.client.open() for _ in range(10)]
        for number, call in enumerate(calls):
            await call.ask(("default", "ROOTCA")[number % 2])
        await ca.until_called(1)
        go_on.set()
        replies = [await call.receive() for call in calls]

        assert len({reply.chain() for reply in replies[::2]}) == 1
        assert await calls[0].is_silent("default")
        assert len(ca.calls) == 1


async def test_who_gives_up_does_not_end_the_attempt_for_others(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def respond(call: CsrCall) -> list[str]:
        await go_on.wait()
        return ROOT.answer(call)

    async with issuing(tmp_path, respond) as (bench, ca):
        first, second = bench.client.open(), bench.client.open()
        await first.ask("default")
        await second.ask("default")
        await ca.until_called(1)
        first.cancel()
        go_on.set()

        assert (await second.receive()).names == ["default"]
        assert len(ca.calls) == 1


async def test_a_certificate_for_somebody_else_is_served_and_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The CA decides who we are; but TRUST_DOMAIN, or the pod's account, is not what it knows."""
    other = [x509.UniformResourceIdentifier("spiffe://elsewhere/ns/default/sa/hello")]

    def respond(call: CsrCall) -> list[str]:
        return [ROOT.sign(call.csr.public_key(), other), ROOT.pem]

    async with issuing(tmp_path, respond) as (bench, _):
        await bench.client.open().fetch("default")

    assert (
        f"certificate for somebody else expected=URI:{SPIFFE_ID} "
        "found=('URI:spiffe://elsewhere/ns/default/sa/hello',)"
    ) in caplog.text


async def test_unknown_names_get_nothing(tmp_path: Path) -> None:
    """D-4."""
    async with issuing(tmp_path) as (bench, _):
        for name in ("kubernetes://secret", "file-cert:one", "file-root:"):
            call = bench.client.open()
            await call.ask(name)
            code, details = await call.status()
            assert code is grpc.StatusCode.UNKNOWN
            assert "unknown resource name" in details


async def test_a_trust_bundle_is_added_to_the_roots(tmp_path: Path) -> None:
    """T-C10: the root first, then a certificate, which the CA may sign by another one."""
    async with issuing(tmp_path) as (bench, ca):
        call = bench.client.open()
        await call.fetch("default", "ROOTCA")
        config = message((1, "./etc/istio/proxy"), (34, OTHER.pem))

        await bench.identity.take_proxy_config(config)
        roots = await call.receive()
        certificate = await call.receive()
        assert roots.roots().decode() == BOTH
        assert certificate.names == ["default"]

        await bench.identity.take_proxy_config(config)
        await bench.identity.take_proxy_config(None)
        assert await call.is_silent("default", "ROOTCA")
        assert len(ca.calls) == 2
        with pytest.raises(ValueError, match="holds no certificate"):
            await bench.identity.take_proxy_config(message((34, "nonsense")))


async def test_what_is_served_is_shown_without_the_key(tmp_path: Path) -> None:
    clock = FakeClock()
    async with issuing(tmp_path, on(clock), clock=clock) as (bench, ca):
        nothing = bench.identity.document()
        reply = await bench.client.open().fetch("default", "ROOTCA")
        shown = bench.identity.document()

    assert nothing["chain"] == []
    assert nothing["source"] is None
    assert shown["source"] == f"issued by localhost:{ca.port}"
    assert [each["san"] for each in shown["chain"]] == [[f"URI:{SPIFFE_ID}"], []]
    assert shown["next_renewal"] == pytest.approx(clock.now().wall + DAY / 2, abs=2)
    assert len(shown["trust_bundle"]) == 1
    assert "PRIVATE" not in str(shown)
    assert reply.key().decode() not in str(shown)


async def test_a_defect_of_ours_does_not_stay_hidden(tmp_path: Path) -> None:
    """A renewal that has silently stopped would take the service down half a day later."""

    def defect(_: CsrCall) -> list[str]:
        clock.now = None  # type: ignore[method-assign, assignment]  # the defect
        return refuse(_)

    clock = FakeClock()
    with pytest.raises(TypeError, match="not callable"):
        async with issuing(tmp_path, defect, clock=clock):
            await asyncio.Event().wait()


async def test_local_resources_ask_for_nothing_that_nobody_needs(tmp_path: Path) -> None:
    """Where there is no control plane there is no CA either, perhaps."""
    async with issuing(tmp_path, warm_up=False) as (bench, ca):
        await bench.client.open().fetch("default")
        assert len(ca.calls) == 1
        again = bench.client.open()
        await again.ask("nonsense")
        await again.status()
        assert len(ca.calls) == 1
