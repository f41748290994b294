"""Certificates from a CA, over TLS, to Envoy's socket. Source: sections 4.7, 5.3 and 6; 11.3."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from agent.identity.settings import IdentitySettings, KeySettings, RotationSettings
from agent.wire import message
from tests.fakes.ca import CsrCall, FakeCa, RefusedError, Respond, Root, fake_ca
from tests.fakes.clock import FakeClock
from tests.fakes.control_plane import Authority
from tests.fakes.identity import SPIFFE_ID, Bench, mode, serving_identity, settings
from tests.fakes.sds_client import SdsCall, sds_client
from tests.waiting import until

AUTHORITY: Final = Authority("ca")
ROOT: Final = Root()
OTHER: Final = Root("other")
#: Their union, as it is served.
BOTH: Final = "\n".join(sorted((OTHER.pem.strip(), ROOT.pem.strip())))
NO_JITTER: Final = RotationSettings(0.5, 0.0)
DAY: Final = 86_400


def prepare(directory: Path) -> None:
    """Write what is mounted into every pod: the CA's root and the token."""
    (directory / "ca-root.pem").write_bytes(AUTHORITY.root)
    (directory / "token").write_text("a-token\n")


@contextlib.asynccontextmanager
async def issuing(
    directory: Path,
    respond: Respond = ROOT.answer,
    *,
    clock: FakeClock | None = None,
    change: Callable[[IdentitySettings], IdentitySettings] = lambda settings: settings,
    **changes: Any,  # noqa: ANN401 - of the settings
) -> AsyncIterator[tuple[Bench, FakeCa]]:
    """Serve secrets that a CA issues."""
    prepare(directory)
    async with fake_ca(respond, directory / "ca", authority=AUTHORITY) as ca:
        chosen = change(settings(directory, ca, rotation=NO_JITTER, **changes))
        async with serving_identity(chosen, mode(directory), clock=clock) as bench:
            yield bench, ca


def on(clock: FakeClock, seconds: float = DAY) -> Respond:
    """Return what issues certificates for a lifetime by a test's clock."""

    def respond(call: CsrCall) -> list[str]:
        lag = clock.lag()
        return ROOT.answer(call, seconds=seconds + lag, starts_in=lag - 60)

    return respond


def refuse(_: CsrCall) -> list[str]:
    raise RefusedError(grpc.StatusCode.PERMISSION_DENIED, "not you")


async def chain_of(call: SdsCall) -> bytes:
    """Return the next chain that is pushed, acknowledged."""
    reply = await call.receive()
    await call.acknowledge(reply)
    return reply.chain()


async def attempt_over(bench: Bench, ca: FakeCa, calls: int) -> None:
    """Return once so many calls were made, and the last one has failed."""
    await ca.until_called(calls)
    await until(lambda: bench.identity.workload.seconds_to_renewal() or 0)


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


@pytest.mark.parametrize("lifetime", [10, 60, DAY])
async def test_a_certificate_is_renewed_in_its_middle(tmp_path: Path, lifetime: int) -> None:
    """C12, R-14, T-C3: any lifetime; a root that stays is not told again."""
    clock = FakeClock()
    async with issuing(tmp_path, on(clock, lifetime), clock=clock) as (bench, ca):
        call, root = bench.client.open(), bench.client.open()
        chains = [(await call.fetch("default")).chain()]
        await root.fetch("ROOTCA")
        for _ in range(3):
            left = bench.identity.workload.seconds_to_renewal()
            assert left is not None
            assert lifetime / 2 - 1 <= left <= lifetime / 2 + 1
            clock.advance(left - 0.01)
            assert await call.is_silent("default")
            clock.advance(0.02)
            chains.append(await chain_of(call))

        assert len(set(chains)) == len(ca.calls) == 4
        assert await root.is_silent("ROOTCA")


@pytest.mark.slow
async def test_two_seconds_are_enough(tmp_path: Path) -> None:
    """C12, by the real clock, and never with a certificate that has expired."""
    async with issuing(tmp_path, authority={"ttl_seconds": 2}) as (bench, ca):
        call = bench.client.open()
        await call.fetch("default")
        for _ in range(4):
            await chain_of(call)
            left = bench.identity.workload.seconds_left()
            assert left is not None
            assert left > 1

    assert len(ca.calls) >= 5


@pytest.mark.parametrize("step", [3600, -3600])
async def test_a_step_of_the_clock_delays_nothing(tmp_path: Path, step: float) -> None:
    clock = FakeClock()
    async with issuing(tmp_path, on(clock, 2 * 3600), clock=clock) as (bench, _):
        call = bench.client.open()
        await call.fetch("default")

        clock.advance(2 if step > 0 else 3600 + 2, step=step)

        assert await chain_of(call)


async def test_a_new_root_comes_before_the_certificate_under_it(tmp_path: Path) -> None:
    """C8, R-14."""
    clock = FakeClock()
    roots = [ROOT.pem, OTHER.pem + ROOT.pem]

    def respond(call: CsrCall) -> list[str]:
        return [on(clock)(call)[0], roots[min(len(ca.calls), 2) - 1]]  # type: ignore[index]  # a list

    async with issuing(tmp_path, respond, clock=clock) as (bench, ca):
        call = bench.client.open()
        await call.fetch("default", "ROOTCA")
        clock.advance(DAY / 2 + 2)
        pushed = [await call.receive(), await call.receive()]

        assert [reply.names for reply in pushed] == [["ROOTCA"], ["default"]]
        assert pushed[0].roots().decode() == "\n".join(
            sorted((OTHER.pem.strip(), ROOT.pem.strip()))
        )


async def test_without_the_ca_the_old_certificate_is_served_until_it_expires(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C13, D-25."""
    clock = FakeClock()
    async with issuing(tmp_path, on(clock), clock=clock) as (bench, ca):
        call = bench.client.open()
        before = (await call.fetch("default")).chain()
        ca.respond = refuse

        clock.advance(DAY / 2 + 2)
        await attempt_over(bench, ca, 2)
        for calls in range(3, 6):
            clock.advance(2.0**calls)
            await attempt_over(bench, ca, calls)
        assert (await bench.client.open().fetch("default")).chain() == before
        assert "not you" in str(bench.identity.problem())

        clock.advance(DAY / 2)
        late = bench.client.open()
        await late.ask("default")
        code, details = await late.status()
        assert code is grpc.StatusCode.UNKNOWN
        assert details.startswith(
            "failed to generate secret for default: failed to generate workload certificate: "
            "create certificate: localhost:"
        )
        left = bench.metric('cert_expiry_seconds{resource_name="default"}')
        assert left is not None
        assert left < 0

        ca.respond = on(clock)
        again = await bench.client.open().fetch("default")
        assert again.chain() != before
        assert await chain_of(call) == again.chain()
        assert bench.identity.problem() is None
    levels = [record.levelname for record in caplog.records if "not renewed" in record.getMessage()]
    assert levels[:4] == ["WARNING"] * 4
    assert levels[4] == "ERROR"


def wrong_key(call: CsrCall) -> list[str]:
    del call
    name = [x509.UniformResourceIdentifier(SPIFFE_ID)]
    return [ROOT.sign(ec.generate_private_key(ec.SECP256R1()).public_key(), name), ROOT.pem]


@pytest.mark.parametrize(
    "answer",
    [
        wrong_key,
        lambda call: ROOT.answer(call, seconds=-10),
        lambda call: ROOT.answer(call, seconds=3 * DAY, starts_in=2 * DAY),
        lambda call: ROOT.answer(call)[::-1],
        lambda call: ROOT.answer(call)[:1],
        lambda _: [],
        lambda call: [*ROOT.answer(call)[:1], "nonsense"],
    ],
    ids=["wrong key", "expired", "not yet valid", "out of order", "no root", "nothing", "nonsense"],
)
async def test_a_bad_answer_leaves_the_old_certificate(
    tmp_path: Path, answer: Callable[[CsrCall], list[str]]
) -> None:
    """T-K1: and the next good answer is taken."""
    clock = FakeClock()
    async with issuing(tmp_path, on(clock), clock=clock) as (bench, ca):
        call = bench.client.open()
        before = (await call.fetch("default")).chain()
        ca.respond = answer
        clock.advance(DAY / 2 + 2)
        await attempt_over(bench, ca, 2)
        clock.advance(60)
        await attempt_over(bench, ca, 3)
        assert (await bench.client.open().fetch("default")).chain() == before

        ca.respond = on(clock)
        clock.advance(60)
        assert await chain_of(call) != before


async def test_it_recovers_without_anybody_asking(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """T-A13, R-10."""
    clock = FakeClock()
    async with issuing(tmp_path, refuse, clock=clock) as (bench, ca):
        for calls in (1, 2):
            await ca.until_called(calls)
            await until(lambda calls=calls: caplog.text.count("not ready") == calls)  # type: ignore[misc]  # mypy#15459
            clock.advance(2)
        ca.respond = on(clock)

        assert (await bench.client.open().fetch("default")).names == ["default"]
        assert len(ca.calls) == 3


async def test_an_envoy_that_asks_again_causes_an_attempt(tmp_path: Path) -> None:
    """R-4: the end of the stream is how Envoy's own retries get a certificate."""
    async with issuing(tmp_path, refuse, clock=FakeClock()) as (bench, ca):
        call = bench.client.open()
        await call.ask("default")
        await call.status()
        ca.respond = ROOT.answer

        assert (await bench.client.open().fetch("default")).names == ["default"]


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
    assert [each["uris"] for each in shown["chain"]] == [[SPIFFE_ID], []]
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


@pytest.mark.slow
async def test_a_process_that_was_suspended_renews_when_it_wakes(tmp_path: Path) -> None:
    """Its timers stood still, the certificate did not: by the clocks it is overdue at once."""
    prepare(tmp_path)

    def respond(call: CsrCall) -> list[str]:
        return ROOT.answer(call, seconds=4)

    async with fake_ca(respond, tmp_path / "ca", authority=AUTHORITY) as ca:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.fakes.identity", tmp_path, str(ca.port)),
            cwd=Path(__file__).parents[2],
        )
        try:
            await ca.until_called(1)
            await until((tmp_path / "sds").exists)
            async with sds_client(str(tmp_path / "sds")) as client:
                call = client.open()
                before = (await call.fetch("default")).chain()
                process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(3)  # longer than to the renewal
                assert len(ca.calls) == 1
                process.send_signal(signal.SIGCONT)

                assert await chain_of(call) != before
        finally:
            process.kill()
            await process.wait()
