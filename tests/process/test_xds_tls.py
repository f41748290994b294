"""The relay's TLS: roots, names and client certificates. Source: sections 2.2 and 2.12."""

import contextlib
import datetime as dt
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import grpc
import pytest

from agent.credentials.settings import TokenSettings
from agent.errors import AgentError
from agent.xds.discovery import Kind
from agent.xds.run import Relay, serving
from agent.xds.settings import CredentialSettings, UpstreamSettings, XdsSettings
from tests.fakes.ads_client import AdsClient, ads_client
from tests.fakes.control_plane import (
    SERVER_NAME,
    Authority,
    ControlPlane,
    control_plane,
    write_pair,
)
from tests.fakes.google import google
from tests.fakes.http2 import http2_server, status
from tests.fakes.relay_bench import Counts
from tests.waiting import until

AUTHORITY: Final = Authority()
OTHER: Final = Authority("other")
BROKEN: Final = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"


def settings(
    directory: Path, plane: ControlPlane, *, name: str = SERVER_NAME, provisioned: bool = False
) -> XdsSettings:
    credentials = CredentialSettings(
        root=str(directory / "root.pem"), provisioned=str(directory) if provisioned else ""
    )
    upstream = UpstreamSettings(
        address=plane.address,
        tls=True,
        server_name=name,
        credentials=credentials,
        metadata=(("clusterid", ""),),
        token=TokenSettings(str(directory / "token")),
    )
    return XdsSettings(str(directory / "XDS"), upstream)


@contextlib.asynccontextmanager
async def relaying(
    settings: XdsSettings, count: Callable[..., None] = lambda *_, **__: None
) -> AsyncIterator[tuple[Relay, AdsClient]]:
    async with (
        serving(settings, count=count) as relay,
        ads_client(settings.socket_path) as client,
    ):
        yield relay, client


async def test_the_control_plane_is_verified_and_gets_the_token(tmp_path: Path) -> None:
    (tmp_path / "root.pem").write_bytes(AUTHORITY.root)
    (tmp_path / "token").write_text("secret")
    async with (
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        relaying(settings(tmp_path, plane)) as (_, client),
    ):
        client.open(Kind.DELTA)
        stream = await plane.accept()

    assert stream.metadata["authorization"] == "Bearer secret"


@pytest.mark.parametrize("tls", [True, False])
async def test_the_authority_is_the_verified_name_or_else_the_address(
    tls: bool,  # noqa: FBT001 - a parameter of the table
    tmp_path: Path,
) -> None:
    (tmp_path / "root.pem").write_bytes(AUTHORITY.root)
    write_pair(tmp_path, AUTHORITY.issue(SERVER_NAME))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert-chain.pem", tmp_path / "key.pem")
    context.set_alpn_protocols(["h2"])
    async with http2_server(status(), context if tls else None) as server:
        plane = ControlPlane(server.port)
        made = settings(tmp_path, plane)
        made = made._replace(upstream=made.upstream._replace(tls=tls))
        async with relaying(made) as (_, client):
            client.open(Kind.DELTA)
            await until(lambda: server.begun)
            (begun,) = server.begun

    assert begun.headers[":authority"] == (SERVER_NAME if tls else plane.address)


async def test_a_token_that_cannot_be_had_ends_the_stream(tmp_path: Path) -> None:
    """Section 2.2: Google's metadata server makes it, and the next stream asks again."""
    (tmp_path / "root.pem").write_bytes(AUTHORITY.root)
    async with (
        google(tmp_path) as metadata,
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
    ):
        chosen = settings(tmp_path, plane)
        chosen = chosen._replace(upstream=chosen.upstream._replace(token=metadata.settings))
        async with relaying(chosen) as (relay, client):
            metadata.status = 503
            code, details = await client.open(Kind.DELTA).status()
            problem = relay.problem()
            metadata.status = 200
            client.open(Kind.DELTA)
            stream = await plane.accept()

    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert "no token from the metadata server 127.0.0.1: expected 200, got 503" in details
    assert details in str(problem)
    assert stream.metadata["authorization"] == f"Bearer {metadata.given[-1]}"


async def test_a_replaced_root_counts_from_the_next_stream_on(tmp_path: Path) -> None:
    """T-X11, C7."""
    (tmp_path / "root.pem").write_bytes(OTHER.root)
    async with (
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        relaying(settings(tmp_path, plane)) as (relay, client),
    ):
        code, details = await client.open(Kind.DELTA).status()
        problem = relay.problem()
        (tmp_path / "root.pem").write_bytes(AUTHORITY.root)
        client.open(Kind.DELTA)
        await plane.accept()

    assert code is grpc.StatusCode.UNAVAILABLE
    assert "CERTIFICATE_VERIFY_FAILED" in details
    assert details in str(problem)


async def test_a_root_that_becomes_unusable_leaves_the_last_one_in_force(tmp_path: Path) -> None:
    (tmp_path / "root.pem").write_bytes(AUTHORITY.root)
    async with (
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        relaying(settings(tmp_path, plane)) as (_, client),
    ):
        client.open(Kind.DELTA)
        await plane.accept()
        for content in (b"", BROKEN, None):
            (tmp_path / "root.pem").unlink()
            if content is not None:
                (tmp_path / "root.pem").write_bytes(content)
            client.open(Kind.DELTA)
            await plane.accept()


async def test_a_broken_certificate_in_the_root_file_spoils_no_other(tmp_path: Path) -> None:
    """R-13."""
    (tmp_path / "root.pem").write_bytes(BROKEN + OTHER.root + AUTHORITY.root)
    async with (
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        relaying(settings(tmp_path, plane)) as (_, client),
    ):
        client.open(Kind.DELTA)
        await plane.accept()


@pytest.mark.parametrize("content", [b"", b"no certificate", BROKEN])
async def test_a_root_file_without_certificate_is_found_on_entering(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "root.pem").write_bytes(content)

    with pytest.raises(AgentError, match=r"root\.pem \(XDS_ROOT_CA\): holds no certificate"):
        async with relaying(settings(tmp_path, ControlPlane(1))):
            pass


async def test_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root.pem").write_bytes(AUTHORITY.root)
    async with control_plane(pair=AUTHORITY.issue("another.example")) as plane:
        async with relaying(settings(tmp_path, plane)) as (_, client):
            code, _details = await client.open(Kind.DELTA).status()

        async with relaying(settings(tmp_path, plane, name="another.example")) as (_, client):
            client.open(Kind.DELTA)
            await plane.accept()

    assert code is grpc.StatusCode.UNAVAILABLE


async def test_the_client_certificate_is_read_for_each_stream(tmp_path: Path) -> None:
    (tmp_path / "root.pem").write_bytes(AUTHORITY.root)
    write_pair(tmp_path, AUTHORITY.issue("first"))
    async with (
        control_plane(pair=AUTHORITY.issue(SERVER_NAME), client_root=AUTHORITY.root) as plane,
        relaying(settings(tmp_path, plane, provisioned=True)) as (_, client),
    ):
        client.open(Kind.DELTA)
        first = await plane.accept()
        write_pair(tmp_path, AUTHORITY.issue("second"))
        client.open(Kind.DELTA)
        second = await plane.accept()

    assert first.identity["x509_common_name"] == [b"first"]
    assert second.identity["x509_common_name"] == [b"second"]


@pytest.mark.parametrize("state", ["missing", "garbage", "expired"])
async def test_without_a_good_client_certificate_only_the_token_speaks(
    state: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "root.pem").write_bytes(AUTHORITY.root)
    (tmp_path / "token").write_text("secret")
    if state == "garbage":
        (tmp_path / "cert-chain.pem").write_text("garbage")
    if state == "expired":
        write_pair(tmp_path, AUTHORITY.issue("old", lifetime=dt.timedelta(seconds=-1)))
    async with (
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        relaying(settings(tmp_path, plane, provisioned=True)) as (_, client),
    ):
        client.open(Kind.DELTA)
        stream = await plane.accept()

    assert stream.metadata["authorization"] == "Bearer secret"
    assert "no client certificate" in caplog.text


async def test_a_key_that_does_not_fit_fails_the_handshake(tmp_path: Path) -> None:
    (tmp_path / "root.pem").write_bytes(AUTHORITY.root)
    write_pair(tmp_path, AUTHORITY.issue("me")._replace(key=AUTHORITY.issue("other").key))
    async with (
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        relaying(settings(tmp_path, plane, provisioned=True)) as (_, client),
    ):
        code, _details = await client.open(Kind.DELTA).status()

    assert code is grpc.StatusCode.UNAVAILABLE


async def test_a_key_that_cannot_be_read_is_no_channel_until_it_can(tmp_path: Path) -> None:
    (tmp_path / "root.pem").write_bytes(AUTHORITY.root)
    pair = AUTHORITY.issue("me")
    write_pair(tmp_path, pair)
    (tmp_path / "key.pem").unlink()
    counts = Counts()
    async with (
        control_plane(pair=AUTHORITY.issue(SERVER_NAME)) as plane,
        relaying(settings(tmp_path, plane, provisioned=True), counts.add) as (relay, client),
    ):
        code, details = await client.open(Kind.DELTA).status()
        await counts.reach(("istiod_connection_failures", ""))
        problem = relay.problem()
        write_pair(tmp_path, pair)
        client.open(Kind.DELTA)
        await plane.accept()

    assert code is grpc.StatusCode.UNAVAILABLE
    assert "no channel to the control plane" in details
    assert "key.pem" in str(problem)
