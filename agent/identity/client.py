"""The CA: one call, its attempts, and who speaks for this pod in each.

Each attempt has a connection of its own, made from what lies in the files at that moment: roots,
token and client certificate that were rotated count at once (C1, C7, R-6), and between two
renewals, half a day apart, no connection is kept.

Source: xds-identity-dns.md sections 6.2 to 6.4, deviations D-7 and D-24; cases C1, C3 and C7.
"""

import asyncio
import logging
import os.path
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import grpc

from agent.channel.client import Channel, open_channel
from agent.channel.settings import Certificates, Peer
from agent.credentials import places
from agent.credentials.client import fetch_token
from agent.credentials.files import read_client_pair, read_root
from agent.errors import SecretError
from agent.identity import authority
from agent.identity.secret import KeyPair, PrivateKey
from agent.identity.settings import Address, AuthoritySettings
from agent.protobuf.wire import WireError

log = logging.getLogger(__name__)

CALL_SECONDS: Final = 15.0
#: Stands for a gRPC code where the fault is not the CA's, or it is no gRPC fault.
LOCAL: Final = -1
REQUESTS: Final = "num_outgoing_requests"
FAILED: Final = "num_failed_outgoing_requests"
RETRIES: Final = "num_outgoing_retries"
LATENCY: Final = "outgoing_latency"

Count = Callable[..., None]


class Credentials(NamedTuple):
    """Who speaks for this pod: a token, a certificate, or both."""

    token: str = ""
    pair: KeyPair | None = None

    def __repr__(self) -> str:
        """Show nothing of the token (R-29)."""
        return f"Credentials(token={'<token>' if self.token else None}, pair={self.pair!r})"


class CallError(Exception):
    """One attempt has failed."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class CertificateAuthority:
    """Whoever signs this workload's certificates."""

    def __init__(
        self,
        settings: AuthoritySettings,
        *,
        count: Count,
        rng: Callable[[], float],
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        """Nothing is read or dialled before the first call.

        Args:
            settings: where the CA is, and what is asked of it.
            count: adds to a counter.
            rng: chance, in [0, 1).
            call_seconds: limit of one attempt (D-7).
        """
        self._settings = settings
        self._count = count
        self._rng = rng
        self._call_seconds = call_seconds
        self._next = 0  #: index of the address to be asked next: the one that answered last
        self.address = ""  #: the one that was asked last

    async def sign(self, request: str, own: KeyPair | None) -> list[str]:
        """Return the elements of the chain for a CSR.

        Args:
            request: PEM.
            own: the workload's present certificate, if it is still good: what is left to speak
                for this pod where the token does not (C3).

        Raises:
            SecretError: no address gave a certificate; says which one was asked last.
        """
        message = authority.write_csr_request(self._settings, request)
        clock = asyncio.get_running_loop().time
        started = clock()
        self._count(REQUESTS, request_type="csr")
        try:
            return await self._attempts(message, own)
        except CallError as error:
            self._count(FAILED, request_type="csr")
            raise SecretError(f"create certificate: {error}") from error
        finally:
            self._count(LATENCY, (clock() - started) * 1000, request_type="csr")

    async def _attempts(self, message: bytes, own: KeyPair | None) -> list[str]:
        """Return the first answer, asking each address in turn where that may help."""
        addresses = self._settings.addresses
        attempts = max(authority.ATTEMPTS, len(addresses))
        attempt = 1
        while True:
            try:
                return await self._ask(addresses[self._next], message, own)
            except CallError as error:
                self._next = (self._next + 1) % len(addresses)
                if attempt == attempts or error.code not in authority.RETRIED:
                    raise
                log.debug("! failed attempt=%d reason=%r", attempt, str(error))
            await asyncio.sleep(authority.wait_seconds(attempt, len(addresses), self._rng()))
            self._count(RETRIES, request_type="csr")
            attempt += 1

    async def _ask(self, address: Address, message: bytes, own: KeyPair | None) -> list[str]:
        """Return the answer of one address, whoever must speak for us."""
        self.address = address.target
        refused: CallError | None = None
        tried: Credentials | None = None
        for _ in range(2):  # they may be rotated while the first call is under way
            try:
                credentials = await self._credentials(address)
                if credentials == tried:
                    break
                tried = credentials
                return await self._call(address, message, credentials)
            except CallError as error:
                refused = self._take_refusal(address, error)
        if own and address.tls and (tried is None or own != tried.pair):
            log.warning(
                "token not accepted, renewing by the present certificate reason=%r", str(refused)
            )
            return await self._call(address, message, Credentials(pair=own))
        assert refused  # noqa: S101 - or there would be an answer
        raise refused

    def _take_refusal(self, address: Address, error: CallError) -> CallError:
        """Return an error that other credentials may be spared; raise it if it is none."""
        if error.code != authority.UNAUTHENTICATED:
            raise error
        log.debug("! refused address=%s reason=%r", address.target, str(error))
        return error

    async def _credentials(self, address: Address) -> Credentials:
        """Return who speaks for us now."""
        token = ""
        if address.send_token:
            try:
                token = await fetch_token(self._settings.token)
            except SecretError as error:
                raise CallError(authority.UNAUTHENTICATED, str(error)) from error
        return Credentials(token, self._provisioned())

    def _provisioned(self) -> KeyPair | None:
        """Return the machine's own certificate, if it has one that is good."""
        directory = self._settings.provisioned
        if not directory:
            return None
        try:
            chain, key = read_client_pair(
                f"{directory}/{places.CHAIN}", f"{directory}/{places.KEY}"
            )
        except OSError as error:
            log.warning("no client certificate path=%s reason=%r", directory, str(error))
            return None
        return KeyPair(chain, PrivateKey(key)) if chain and key else None

    async def _call(self, address: Address, message: bytes, credentials: Credentials) -> list[str]:
        """Return the answer to one call on a new connection."""
        metadata = grpc.aio.Metadata(*self._settings.metadata)
        if credentials.token:
            metadata.add("authorization", f"Bearer {credentials.token}")
        channel = self._channel(address, credentials.pair)
        method = channel.grpc.unary_unary(authority.METHOD, None, None)
        try:
            raw: Any = await method(message, timeout=self._call_seconds, metadata=metadata)
            return authority.read_chain(raw)
        except grpc.aio.AioRpcError as error:
            code, details = error.code(), error.details() or ""
            text = f"{address.target}: {code.name}: {channel.explain(code, details)}"
            raise CallError(code.value[0], text) from error
        except WireError as error:
            raise CallError(LOCAL, f"{address.target}: answer cannot be read: {error}") from None
        except grpc.aio.BaseError as error:  # a call that gRPC itself will not make
            raise CallError(LOCAL, f"{address.target}: {error}") from error
        finally:
            await channel.close()

    def _channel(self, address: Address, pair: KeyPair | None) -> Channel:
        certificates = Certificates(self._root(), *(pair or ())) if address.tls else None
        peer = Peer(address.target, address.server_name, address.proxy, address.policy)
        try:
            return open_channel(peer, certificates)
        except (OSError, ValueError) as error:
            raise CallError(LOCAL, f"{address.target}: {error}") from error

    def _root(self) -> bytes:
        try:
            root = authority.choose_root(self._settings, os.path.isfile)
        except SecretError as error:
            raise CallError(LOCAL, str(error)) from error
        try:
            return read_root(root)
        except (OSError, ValueError) as error:
            raise CallError(LOCAL, f"{root.path} ({root.rule}): {error}; {root.remedy}") from error
