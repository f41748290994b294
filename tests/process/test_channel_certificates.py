"""Whom a channel under a policy believes, and who it says it is. Source: section 2.2."""

import asyncio
import datetime as dt
import socket
import ssl
from pathlib import Path
from typing import Final

import grpc
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from agent.channel.client import open_channel
from agent.channel.policies import POLICIES
from agent.channel.settings import Certificates, Peer
from tests.fakes.channel import (
    AUTHORITY,
    PAIR,
    POLICY,
    ask,
    channel_to,
    echo,
    refusal,
)
from tests.fakes.control_plane import SERVER_NAME, Authority, Pair
from tests.fakes.tls_records import server_context

OTHER: Final = Authority("other")
UNAVAILABLE: Final = grpc.StatusCode.UNAVAILABLE

ENCRYPTED: Final = load_pem_private_key(PAIR.key, None).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
)

every_policy: Final = pytest.mark.parametrize("policy", POLICIES)


async def test_who_signs_the_server_must_be_known() -> None:
    async with (
        echo() as (address, handler),
        channel_to(address, certificates=Certificates(OTHER.root)) as channel,
    ):
        code, details = await refusal(channel)

    assert code is UNAVAILABLE
    assert details == (
        f"failed to connect to all addresses; last error: {address}: CERTIFICATE_VERIFY_FAILED: "
        "unable to get local issuer certificate"
    )
    assert handler.peers == []


@pytest.mark.parametrize("name", ["elsewhere.svc", "127.0.0.2", "svc", f"x.{SERVER_NAME}"])
async def test_the_servers_name_must_be_in_its_certificate(name: str) -> None:
    async with echo() as (address, _), channel_to(address, name=name) as channel:
        _, details = await refusal(channel)

    assert details.endswith(f"{address}: Peer name {name} is not in peer certificate")


@pytest.mark.parametrize("name", ["", ".", ".istio-system.svc", f"{SERVER_NAME}\0", "a" * 254])
async def test_nobody_is_believed_without_a_name(name: str) -> None:
    """OpenSSL would take any certificate for none, and one of any host below a domain."""
    async with echo() as (address, _), channel_to(address, name=name) as channel:
        _, details = await refusal(channel)

    assert details.endswith(f"{name!r} is no name of a server")


@pytest.mark.parametrize(
    "name", [f"{SERVER_NAME}.", SERVER_NAME.upper(), "127.0.0.1", "[127.0.0.1]"]
)
async def test_a_name_may_be_written_in_several_ways(name: str) -> None:
    async with echo() as (address, _), channel_to(address, name=name) as channel:
        assert await ask(channel) == b"hello"


async def test_a_certificate_that_has_expired_is_refused() -> None:
    expired = AUTHORITY.issue(SERVER_NAME, lifetime=dt.timedelta(hours=-1))
    async with echo(expired) as (address, _), channel_to(address) as channel:
        _, details = await refusal(channel)

    assert details.endswith("CERTIFICATE_VERIFY_FAILED: certificate has expired")


async def test_a_root_that_is_broken_spoils_no_other() -> None:
    broken = b"-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n"
    async with (
        echo() as (address, _),
        channel_to(address, certificates=Certificates(broken + AUTHORITY.root)) as channel,
    ):
        assert await ask(channel) == b"hello"


async def test_a_server_that_is_trusted_by_itself_needs_no_root() -> None:
    """As Go has it: whatever is among the roots is believed, though it be no root."""
    async with (
        echo() as (address, _),
        channel_to(address, certificates=Certificates(PAIR.certificate)) as channel,
    ):
        assert await ask(channel) == b"hello"


@every_policy
async def test_a_server_learns_who_the_client_is(policy: str) -> None:
    own = OTHER.issue("web")
    certificates = Certificates(AUTHORITY.root, own.certificate + OTHER.root, own.key)
    async with (
        echo(client_root=OTHER.root) as (address, handler),
        channel_to(address, certificates=certificates, policy=policy) as channel,
    ):
        await ask(channel)

    assert b"web" in handler.identities[0]


def refuse(listener: socket.socket, context: ssl.SSLContext) -> None:
    """Take a client that lacks something; asyncio would not tell it."""
    connection, _ = listener.accept()
    with connection, connection.dup() as raw:
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(connection, server_side=True, suppress_ragged_eofs=False)
        while raw.recv(4096):
            pass


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fips-140-2", "alert handshake failure"),
        # The client's handshake was done long before.
        ("fips-140-3", "tlsv13 alert certificate required"),
    ],
)
async def test_a_server_says_what_it_misses(policy: str, expected: str, tmp_path: Path) -> None:
    context = server_context(tmp_path, PAIR)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        refusing = asyncio.create_task(asyncio.to_thread(refuse, listener, context))
        async with channel_to(address, policy=policy) as channel:
            code, details = await refusal(channel)
        await refusing

    assert code is UNAVAILABLE
    assert f"{address}: TLS: " in details
    assert expected in details


async def test_a_connection_that_ends_is_that_of_the_server() -> None:
    async with echo(client_root=OTHER.root) as (address, _), channel_to(address) as channel:
        _, details = await refusal(channel)

    assert details.endswith(f"{address}: Socket closed")


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (PAIR._replace(key=OTHER.issue("web").key), "key values mismatch"),
        (PAIR._replace(key=b"no key"), "the client's key cannot be read"),
        (PAIR._replace(key=ENCRYPTED), "the client's key cannot be read: bad decrypt"),
    ],
)
async def test_a_broken_pair_opens_no_channel(pair: Pair, expected: str) -> None:
    certificates = Certificates(AUTHORITY.root, pair.certificate, pair.key)

    with pytest.raises(ValueError, match=expected):
        open_channel(Peer("127.0.0.1:1", SERVER_NAME, policy=POLICY), certificates)
