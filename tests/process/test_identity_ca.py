"""Calls to a CA over TLS: attempts, addresses, credentials. Source: section 6; 11.3, T-K."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import grpc
import pytest

from agent.credentials.settings import TokenSettings
from agent.errors import SecretError
from agent.identity.client import CertificateAuthority
from agent.identity.csr import make_key, write_csr
from agent.identity.keys import KeySettings
from agent.identity.secret import KeyPair, PrivateKey
from agent.identity.settings import Address, AuthoritySettings
from agent.metrics import Metrics
from tests.fakes.ca import CsrCall, FakeCa, RefusedError, Respond, Root, fake_ca, write_files
from tests.fakes.control_plane import SERVER_NAME, Authority
from tests.fakes.google import google

AUTHORITY: Final = Authority("ca")
ROOT: Final = Root()
SPIFFE_ID: Final = "spiffe://cluster.local/ns/default/sa/hello"
ELLIPTIC: Final = KeySettings(SPIFFE_ID, elliptic=True)
CSR: Final = write_csr(make_key(ELLIPTIC), ELLIPTIC)[1].decode()


class Bench:
    """A client of CAs, and the files it reads."""

    def __init__(self, directory: Path, *cas: FakeCa, tls: bool = True, **changes: Any) -> None:  # noqa: ANN401 - of the settings
        (directory / "root.pem").write_bytes(AUTHORITY.root)
        (directory / "token").write_text("a-token")
        self.directory = directory
        self.metrics = Metrics()
        call_seconds = changes.pop("call_seconds", 15.0)
        settings = AuthoritySettings(
            tuple(Address(ca.address, SERVER_NAME, tls, send_token=True) for ca in cas),
            root=str(directory / "root.pem"),
            token=TokenSettings(str(directory / "token")),
        )._replace(**changes)
        self.client = CertificateAuthority(
            settings, count=self.metrics.count, rng=lambda: 0.0, call_seconds=call_seconds
        )

    async def sign(self, own: KeyPair | None = None) -> list[str]:
        return await self.client.sign(CSR, own)

    def provision(self, **how: float) -> None:
        write_files(self.directory / "prov", ROOT.pair("spiffe://td/ns/x/sa/machine", **how))


@contextlib.asynccontextmanager
async def ca(directory: Path, respond: Respond = ROOT.answer, **how: Any) -> AsyncIterator[FakeCa]:  # noqa: ANN401 - see fake_ca
    how = {"authority": AUTHORITY, "client_root": ROOT.pem, **how}
    async with fake_ca(respond, directory / "ca", **how) as made:
        yield made


def own_pair() -> KeyPair:
    pair = ROOT.pair(SPIFFE_ID)
    return KeyPair(pair.certificate, PrivateKey(pair.key))


def believing(tokens: set[str]) -> Respond:
    """Return what takes certificates, and these tokens."""

    def respond(call: CsrCall) -> list[str]:
        if not call.identity and call.token not in tokens:
            raise RefusedError(grpc.StatusCode.UNAUTHENTICATED, "request authenticate failure")
        return ROOT.answer(call)

    return respond


async def test_the_chain_is_passed_on(tmp_path: Path) -> None:
    """T-K1, T-K3."""
    async with ca(tmp_path, believing({"a-token"})) as made:
        bench = Bench(tmp_path, made)

        leaf, root = await bench.sign()

    assert "BEGIN CERTIFICATE" in leaf
    assert root == ROOT.pem


async def test_an_answer_may_be_long(tmp_path: Path) -> None:
    """As it may be of the control plane, section 2.3."""
    roots = ROOT.pem + "x" * 5_000_000

    async with ca(tmp_path, lambda call: [*ROOT.answer(call)[:1], roots]) as made:
        assert (await Bench(tmp_path, made).sign())[1] == roots


async def test_an_error_is_passed_on_and_not_repeated(tmp_path: Path) -> None:
    """T-K1, T-K3."""

    def respond(_: CsrCall) -> list[str]:
        raise RefusedError(grpc.StatusCode.UNKNOWN, "the signer is asleep")

    async with ca(tmp_path, respond) as made:
        bench = Bench(tmp_path, made)
        with pytest.raises(
            SecretError, match=r"^create certificate: .*: UNKNOWN: the signer is as"
        ):
            await bench.sign()

    assert len(made.calls) == 1
    assert 'num_failed_outgoing_requests{request_type="csr"} 1' in bench.metrics.render()


@pytest.mark.slow
async def test_a_ca_that_is_away_is_asked_five_times(tmp_path: Path) -> None:
    """T-K2."""

    def respond(_: CsrCall) -> list[str]:
        raise RefusedError(grpc.StatusCode.UNAVAILABLE, "later")

    async with ca(tmp_path, respond) as made:
        bench = Bench(tmp_path, made)
        with pytest.raises(SecretError, match="UNAVAILABLE: later"):
            await bench.sign()

    assert len(made.calls) == 5
    rendered = bench.metrics.render()
    assert 'num_outgoing_requests{request_type="csr"} 1' in rendered
    assert 'num_outgoing_retries{request_type="csr"} 4' in rendered
    assert 'outgoing_latency{request_type="csr"} 1' in rendered  # 1350 ms and more


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
    ],
)
async def test_what_may_pass_is_tried_again(tmp_path: Path, code: grpc.StatusCode) -> None:
    def respond(call: CsrCall) -> list[str]:
        if len(made.calls) == 1:
            raise RefusedError(code)
        return ROOT.answer(call)

    async with ca(tmp_path, respond) as made:
        await Bench(tmp_path, made).sign()

    assert len(made.calls) == 2


async def test_a_ca_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    """D-7."""

    async def respond(_: CsrCall) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    async with ca(tmp_path, respond) as made:
        with pytest.raises(SecretError, match="DEADLINE_EXCEEDED"):
            await Bench(tmp_path, made, call_seconds=0.1).sign()


async def test_the_next_address_is_asked_where_one_does_not_answer(tmp_path: Path) -> None:
    async with ca(tmp_path / "1") as gone:
        pass
    async with ca(tmp_path / "2") as good:
        bench = Bench(tmp_path, gone, good)
        await bench.sign()
        await bench.sign()

        assert bench.client.address == good.address
        assert len(good.calls) == 2
        # The one that is away was asked once: who answered is asked first.
        assert 'num_outgoing_retries{request_type="csr"} 1' in bench.metrics.render()


async def test_after_a_refusal_another_address_comes_first(tmp_path: Path) -> None:
    def refuse(_: CsrCall) -> list[str]:
        raise RefusedError(grpc.StatusCode.PERMISSION_DENIED)

    async with ca(tmp_path / "1", refuse) as refusing, ca(tmp_path / "2") as good:
        bench = Bench(tmp_path, refusing, good)
        with pytest.raises(SecretError, match="PERMISSION_DENIED"):
            await bench.sign()
        await bench.sign()

    assert (len(refusing.calls), len(good.calls)) == (1, 1)


async def test_the_token_is_read_for_each_call(tmp_path: Path) -> None:
    """C1; without a token none is sent."""
    async with ca(tmp_path) as made:
        bench = Bench(tmp_path, made, metadata=(("clusterid", "c"), ("x", "=y")))
        await bench.sign()
        (tmp_path / "token").write_text("another-token\n")
        await bench.sign()
        (tmp_path / "token").unlink()
        await bench.sign()

    assert [call.token for call in made.calls] == ["a-token", "another-token", ""]
    assert "authorization" not in made.calls[2].metadata
    assert [call.metadata["x"] for call in made.calls] == ["=y"] * 3


async def test_a_token_that_was_rotated_meanwhile_gets_its_turn(tmp_path: Path) -> None:
    def respond(call: CsrCall) -> list[str]:
        (tmp_path / "token").write_text("fresh")
        return believing({"fresh"})(call)  # type: ignore[return-value]  # a list

    async with ca(tmp_path, respond) as made:
        await Bench(tmp_path, made).sign()

    assert [call.token for call in made.calls] == ["a-token", "fresh"]


async def test_the_present_certificate_renews_where_the_token_is_dead(tmp_path: Path) -> None:
    """C3."""
    async with ca(tmp_path, believing(set())) as made:
        bench = Bench(tmp_path, made)
        await bench.sign(own_pair())

        assert [(call.token, call.identity) for call in made.calls] == [
            ("a-token", ""),
            ("", SPIFFE_ID),
        ]
        with pytest.raises(SecretError, match="UNAUTHENTICATED: request authenticate failure"):
            await bench.sign()


async def test_a_token_that_cannot_be_had_is_one_that_is_refused(tmp_path: Path) -> None:
    """Section 6.4: asked for twice, and then the present certificate speaks."""
    async with google(tmp_path) as metadata, ca(tmp_path, believing(set())) as made:
        bench = Bench(tmp_path, made, token=metadata.settings)
        (tmp_path / "token").unlink()
        metadata.status = 503
        with pytest.raises(SecretError, match="create certificate: no token from the metadata"):
            await bench.sign()
        await bench.sign(own_pair())
        metadata.status = 200
        made.respond = ROOT.answer
        await bench.sign()

    assert [call.token for call in made.calls] == ["", metadata.given[-1]]
    assert [call.identity for call in made.calls] == [SPIFFE_ID, ""]


async def test_a_machine_has_a_certificate_of_its_own(tmp_path: Path) -> None:
    """T-K4, T-A12."""
    async with ca(tmp_path, believing({"a-token"})) as made:
        bench = Bench(tmp_path, made, provisioned=str(tmp_path / "prov"))
        await bench.sign()
        bench.provision()
        await bench.sign()
        await bench.sign()
        bench.provision(seconds=-1)
        await bench.sign()

    machine = "spiffe://td/ns/x/sa/machine"
    assert [call.identity for call in made.calls] == ["", machine, machine, ""]
    assert {call.token for call in made.calls} == {"a-token"}


async def test_a_machine_with_a_certificate_needs_no_token(tmp_path: Path) -> None:
    """C14."""
    async with ca(tmp_path, believing(set())) as made:
        bench = Bench(tmp_path, made, provisioned=str(tmp_path / "prov"))
        (tmp_path / "token").unlink()
        with pytest.raises(SecretError, match="UNAUTHENTICATED"):
            await bench.sign()
        bench.provision()

        await bench.sign()


async def test_a_key_that_is_missing_leaves_the_token(tmp_path: Path) -> None:
    async with ca(tmp_path, believing({"a-token"})) as made:
        bench = Bench(tmp_path, made, provisioned=str(tmp_path / "prov"))
        bench.provision()
        (tmp_path / "prov" / "key.pem").unlink()

        await bench.sign()

    assert made.calls[0].identity == ""


async def test_a_root_that_is_replaced_counts_at_once(tmp_path: Path) -> None:
    """C7, R-6, D-24: also if it was missing in between."""
    async with ca(tmp_path) as made:
        bench = Bench(tmp_path, made)
        await bench.sign()
        (tmp_path / "root.pem").unlink()
        with pytest.raises(SecretError, match=r"root\.pem .CA_ROOT_CA.: expected the CA's root"):
            await bench.sign()
        (tmp_path / "root.pem").write_text("nonsense")
        with pytest.raises(SecretError, match=r"holds no certificate; correct CA_ROOT_CA"):
            await bench.sign()
        (tmp_path / "root.pem").write_bytes(Authority("other").root + AUTHORITY.root)
        await bench.sign()

    assert len(made.calls) == 2


@pytest.mark.slow
async def test_a_ca_that_is_somebody_else_is_not_asked(tmp_path: Path) -> None:
    async with ca(tmp_path, authority=Authority("other")) as made:
        with pytest.raises(SecretError, match="UNAVAILABLE"):
            await Bench(tmp_path, made).sign()

    assert made.calls == []


async def test_there_may_be_no_tls(tmp_path: Path) -> None:
    async with ca(tmp_path, authority=None) as made:
        await Bench(tmp_path, made, tls=False).sign(own_pair())

    assert [call.token for call in made.calls] == ["a-token"]


async def test_without_tls_there_is_no_certificate_to_show(tmp_path: Path) -> None:
    async with ca(tmp_path, believing(set()), authority=None) as made:
        with pytest.raises(SecretError, match="UNAUTHENTICATED"):
            await Bench(tmp_path, made, tls=False).sign(own_pair())
