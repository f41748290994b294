"""A workload whose certificates a CA issues, by a test's clock."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import grpc

from agent.identity.settings import IdentitySettings, RotationSettings
from tests.fakes.ca import CsrCall, FakeCa, RefusedError, Respond, Root, fake_ca
from tests.fakes.clock import FakeClock
from tests.fakes.control_plane import Authority
from tests.fakes.identity import Bench, mode, serving_identity, settings
from tests.fakes.sds_client import SdsCall
from tests.waiting import until

AUTHORITY: Final = Authority("ca")
ROOT: Final = Root()
OTHER: Final = Root("other")
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
