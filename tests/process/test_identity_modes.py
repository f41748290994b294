"""Mounted certificates, files for others, and other servers. Source: sections 5.1 to 5.8; T-A."""

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from agent.identity.modes import Mode
from agent.identity.settings import OutputSettings, RotationSettings
from agent.protobuf.wire import message
from tests.fakes.ca import CsrCall, FakeCa, RefusedError, Root, fake_ca, write_files
from tests.fakes.clock import FakeClock
from tests.fakes.control_plane import Authority
from tests.fakes.identity import SPIFFE_ID, Bench, mode, serving_identity, settings
from tests.waiting import until

AUTHORITY: Final = Authority("ca")
ROOT: Final = Root()
OTHER: Final = Root("other")
NAMES: Final = ["cert-chain.pem", "key.pem", "root-cert.pem"]


def believing_certificates(call: CsrCall) -> list[str]:
    """Answer the token once, and then only who has a certificate."""
    if not call.identity and call.token != "first-boot":  # noqa: S105 - no secret
        raise RefusedError(grpc.StatusCode.UNAUTHENTICATED)
    return ROOT.answer(call)


@contextlib.asynccontextmanager
async def running(
    directory: Path,
    *,
    chosen: Mode | None = None,
    clock: FakeClock | None = None,
    crl_path: str = "",
    token: str = "first-boot",  # noqa: S107 - no secret
    **changes: Any,  # noqa: ANN401 - of the settings
) -> AsyncIterator[tuple[Bench, FakeCa]]:
    (directory / "ca-root.pem").write_bytes(AUTHORITY.root)
    (directory / "token").write_text(token)
    respond = changes.pop("respond", ROOT.answer)
    async with (
        fake_ca(respond, directory / "ca", authority=AUTHORITY, client_root=ROOT.pem) as ca,
        serving_identity(
            settings(directory, ca, **changes),
            chosen or mode(directory),
            clock=clock,
            crl_path=crl_path,
        ) as bench,
    ):
        yield bench, ca


def files(directory: Path) -> dict[str, bytes]:
    """Return what is complete."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("[!.]*"))}


async def test_mounted_certificates_come_first(tmp_path: Path) -> None:
    """T-A6, T-A10: nobody is asked for another one."""
    pair = ROOT.pair(SPIFFE_ID)
    write_files(tmp_path / "certs", pair, OTHER.pem)
    async with running(tmp_path) as (bench, ca):
        call = bench.client.open()
        reply = await call.fetch("default", "ROOTCA")
        document = bench.identity.document()
        replaced = ROOT.pair(SPIFFE_ID)
        write_files(tmp_path / "certs", replaced)
        pushed = await call.receive()

    assert (reply.chain(), reply.key()) == tuple(pair)
    assert reply.roots().decode() == OTHER.pem.strip()
    assert (pushed.names, pushed.chain()) == (["default"], replaced.certificate)
    assert document["source"].startswith("mounted at ")
    assert document["next_renewal"] is None
    assert ca.calls == []


async def test_a_trust_bundle_is_added_to_a_mounted_root(tmp_path: Path) -> None:
    write_files(tmp_path / "certs", ROOT.pair(SPIFFE_ID), ROOT.pem)
    async with running(tmp_path) as (bench, _):
        call = bench.client.open()
        await call.fetch("ROOTCA")
        await bench.identity.take_proxy_config(message((34, OTHER.pem)))

        roots = (await call.receive()).roots().decode()

    assert roots == "\n".join(sorted((ROOT.pem.strip(), OTHER.pem.strip())))


async def test_without_a_ca_there_must_be_files(tmp_path: Path) -> None:
    chosen = mode(tmp_path, has_authority=False)
    async with running(tmp_path, chosen=chosen) as (bench, ca):
        call = bench.client.open()
        await call.ask("default")
        _, details = await call.status()
        write_files(tmp_path / "certs", ROOT.pair(SPIFFE_ID), ROOT.pem)
        reply = await bench.client.open().fetch("default", "ROOTCA")

    assert "attempted to fetch secret, but ca client is nil" in details
    assert reply.names == ["default", "ROOTCA"]
    assert ca.calls == []


async def test_once_they_are_gone_the_ca_is_asked(tmp_path: Path) -> None:
    write_files(tmp_path / "certs", ROOT.pair(SPIFFE_ID), ROOT.pem)
    async with running(tmp_path) as (bench, ca):
        await bench.client.open().fetch("default")
        for name in NAMES:
            (tmp_path / "certs" / name).unlink()
        await bench.client.open().fetch("default")

    assert len(ca.calls) == 1


async def test_an_empty_file_is_no_certificate(tmp_path: Path) -> None:
    write_files(tmp_path / "certs", ROOT.pair(SPIFFE_ID), ROOT.pem)
    (tmp_path / "certs" / "key.pem").write_text("")
    async with running(tmp_path) as (bench, ca):
        await bench.client.open().fetch("default")

    assert len(ca.calls) == 1


async def test_beside_another_server_only_files_are_served(tmp_path: Path) -> None:
    """T-A5, R-27."""
    write_files(tmp_path / "mine", ROOT.pair(SPIFFE_ID), ROOT.pem)
    pair = f"file-cert:{tmp_path}/mine/cert-chain.pem~{tmp_path}/mine/key.pem"
    root = f"file-root:{tmp_path}/mine/root-cert.pem"
    chosen = mode(tmp_path, has_authority=False, files_only=True)
    async with running(tmp_path, chosen=chosen) as (bench, ca):
        reply = await bench.client.open().fetch(pair, root)
        call = bench.client.open()
        await call.ask("default")
        code, _ = await call.status()
        document = bench.identity.document()

    assert reply.key(pair) == (tmp_path / "mine" / "key.pem").read_bytes()
    assert reply.roots(root).decode() == ROOT.pem
    assert code is grpc.StatusCode.UNKNOWN
    assert document["source"] == "served by another SDS server"
    assert ca.calls == []


async def test_the_systems_trust_store_is_served(tmp_path: Path) -> None:
    async with running(tmp_path) as (bench, _):
        reply = await bench.client.open().fetch("file-root:system")

    assert reply.roots("file-root:system").count(b"BEGIN CERTIFICATE") > 50


async def test_revoked_certificates_belong_to_the_mesh_alone(tmp_path: Path) -> None:
    """D-2; and a CRL that comes later is told."""
    crl = tmp_path / "crl" / "ca-crl.pem"
    crl.parent.mkdir()
    revoked = ROOT.revoke(5)
    (tmp_path / "root.pem").write_text(OTHER.pem)
    file_root = f"file-root:{tmp_path}/root.pem"
    async with running(tmp_path, crl_path=str(crl)) as (bench, _):
        call = bench.client.open()
        before = await call.fetch("ROOTCA", file_root)
        crl.write_bytes(revoked)
        after = await call.receive()
        again = await bench.client.open().fetch(file_root)

    assert not before.secrets["ROOTCA"].validation_context.HasField("crl")
    assert after.names == ["ROOTCA"]
    assert after.secrets["ROOTCA"].validation_context.crl.inline_bytes == revoked
    assert not again.secrets[file_root].validation_context.HasField("crl")


async def test_files_appear_though_nobody_asks(tmp_path: Path) -> None:
    """T-A4, R-28."""
    out = tmp_path / "out"
    out.mkdir()
    async with running(tmp_path, output=OutputSettings(str(out), 0o644, 0o640)) as (bench, _):
        await until(lambda: len(files(out)) == 3)
        reply = await bench.client.open().fetch("default", "ROOTCA")

    assert files(out) == {
        "cert-chain.pem": reply.chain(),
        "key.pem": reply.key(),
        "root-cert.pem": reply.roots(),
    }
    modes = {path.name: path.stat().st_mode & 0o777 for path in out.iterdir()}
    assert modes == {"cert-chain.pem": 0o644, "key.pem": 0o640, "root-cert.pem": 0o644}


async def test_mounted_certificates_are_written_for_others_too(tmp_path: Path) -> None:
    """Section 5.8: also though nobody asks, and again when they are replaced."""
    out = tmp_path / "out"
    out.mkdir()
    chosen = mode(tmp_path, has_authority=False)
    pairs = [ROOT.pair(SPIFFE_ID) for _ in range(2)]
    write_files(tmp_path / "certs", pairs[0], ROOT.pem)
    async with running(tmp_path, chosen=chosen, output=OutputSettings(str(out))) as (_, ca):
        for pair in pairs:
            write_files(tmp_path / "certs", pair)
            await until(lambda pair=pair: files(out).get("cert-chain.pem") == pair.certificate)  # type: ignore[misc]  # mypy#15459
            assert files(out)["key.pem"] == pair.key

    assert list(files(out)) == NAMES
    assert ca.calls == []


async def test_files_are_renewed_by_our_own_clock(tmp_path: Path) -> None:
    """T-A3, D-6: with a ratio of 1 again and again, and without an Envoy, too."""
    out = tmp_path / "out"
    out.mkdir()
    clock = FakeClock()
    changes: dict[str, Any] = {
        "output": OutputSettings(str(out)),
        "rotation": RotationSettings(1.0, 0.0),
        "envoy_enabled": False,
    }
    (tmp_path / "ca-root.pem").write_bytes(AUTHORITY.root)
    seen = set()
    async with fake_ca(ROOT.answer, tmp_path / "ca", authority=AUTHORITY) as ca:
        made = settings(tmp_path, ca, **changes)
        async with serving_identity(made, mode(tmp_path), clock=clock):
            for number in range(1, 4):
                await until(lambda: len(files(out)) == 3 and files(out)["key.pem"] not in seen)
                seen.add(files(out)["key.pem"])
                assert len(ca.calls) == number
                clock.advance(2)
            assert not (tmp_path / "sds").exists()
    assert sorted(files(out)) == NAMES


async def test_what_could_not_be_written_is_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    clock = FakeClock()
    async with running(tmp_path, clock=clock, output=OutputSettings(str(out))) as (bench, ca):
        await until(lambda: "OUTPUT_CERTS=" in caplog.text)
        assert bench.identity.problem() == (
            f"OUTPUT_CERTS={out}: No such file or directory; expected a directory with space that "
            f"user {os.geteuid()} may write to"
        )
        assert (await bench.client.open().fetch("default")).names == ["default"]
        out.mkdir()
        clock.advance(1)

        await until(lambda: bench.identity.problem() is None)
        assert list(files(out)) == NAMES
        assert len(ca.calls) == 1


async def test_what_the_agent_writes_it_does_not_read_back(tmp_path: Path) -> None:
    """Section 5.3: it would never renew it."""
    out = tmp_path / "certs"
    out.mkdir()
    clock = FakeClock()
    output = OutputSettings(f"{tmp_path}/./certs/")
    async with running(tmp_path, clock=clock, output=output) as (bench, ca):
        await until(lambda: len(files(out)) == 3)
        before = files(out)
        clock.advance(24 * 3600)
        await ca.until_called(2)
        await until(lambda: files(out)["key.pem"] != before["key.pem"])

    assert bench.identity.problem() is None


async def test_a_machine_starts_with_a_token_and_goes_on_by_what_it_got(tmp_path: Path) -> None:
    """T-A11, C14: PROV_CERT and OUTPUT_CERTS are one directory, and the token expires."""
    machine = tmp_path / "machine"
    machine.mkdir()
    changes: dict[str, Any] = {
        "respond": believing_certificates,
        "output": OutputSettings(str(machine)),
        "authority": {"provisioned": str(machine)},
    }
    async with running(tmp_path, **changes) as (bench, first):
        await until(lambda: len(files(machine)) == 3)
    async with running(tmp_path, token="expired", **changes) as (bench, second):  # noqa: S106 - no secret
        await bench.client.open().fetch("default")

    assert first.calls[0].identity == ""
    assert second.calls[-1].identity == SPIFFE_ID


async def test_provisioned_files_are_never_written(tmp_path: Path) -> None:
    """T-A12."""
    machine = tmp_path / "machine"
    write_files(machine, ROOT.pair("spiffe://td/ns/a/sa/machine"), ROOT.pem)
    before = files(machine)
    clock = FakeClock()
    changes: dict[str, Any] = {
        "rotation": RotationSettings(1.0, 0.0),
        "authority": {"provisioned": str(machine)},
    }
    async with running(tmp_path, clock=clock, **changes) as (bench, ca):
        call = bench.client.open()
        await call.fetch("default")
        for _ in range(2):
            clock.advance(2)
            await call.acknowledge(await call.receive())

    assert files(machine) == before
    assert len(ca.calls) == 3
    assert {call.identity for call in ca.calls} == {"spiffe://td/ns/a/sa/machine"}
