"""Certificates are renewed in time, and only by good ones. Source: sections 5.3 and 5.7; 11.3."""

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from agent.errors import SecretError
from agent.identity.keys import KeySettings
from agent.identity.process import spawn
from agent.identity.renewal.run import Workload
from agent.identity.secret import KeyPair
from tests.fakes.ca import CsrCall, fake_ca
from tests.fakes.clock import FakeClock
from tests.fakes.identity import SPIFFE_ID
from tests.fakes.issuing import (
    AUTHORITY,
    DAY,
    NO_JITTER,
    OTHER,
    ROOT,
    attempt_over,
    chain_of,
    issuing,
    on,
    prepare,
    refuse,
)
from tests.fakes.sds_client import sds_client
from tests.waiting import listens, until


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
        assert (await bench.client.open().fetch("ROOTCA")).roots().decode() == ROOT.pem.strip()
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


class Defective:
    """A CA's client with a defect; a good one follows."""

    address = "ca:15012"

    def __init__(self) -> None:
        self.defects = 0

    async def sign(self, request: str, own: KeyPair | None) -> list[str]:
        del own
        self.defects += 1
        if self.defects <= 2:
            raise KeyError("defect")
        csr = x509.load_pem_x509_csr(request.encode())
        return ROOT.answer(CsrCall(csr, DAY, "", {}, ""))


async def test_a_defect_takes_nothing_down_that_is_still_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever it is: the next attempt may succeed, and there is half a lifetime left."""
    clock, signer = FakeClock(), Defective()
    workload = Workload(
        NO_JITTER,
        signer,
        make_csr=lambda: spawn(KeySettings(SPIFFE_ID, elliptic=True)).result(),
        renewed=lambda *_: None,
        rng=lambda: 0.5,
        clock=clock,
    )
    running = asyncio.create_task(workload.run())
    try:
        for attempt in (1, 2):
            with pytest.raises(SecretError, match=r"workload certificate: KeyError\('defect'\)"):
                await workload.get()
            assert "defect" in workload.problem
            assert signer.defects == attempt

        assert await workload.get()
        assert workload.problem == ""
    finally:
        running.cancel()
        await asyncio.wait((running,))
    assert caplog.text.count("Traceback") == 2


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
            await until(lambda: listens(tmp_path / "sds"))
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
