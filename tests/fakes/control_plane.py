"""A control plane that does as it is told: real gRPC, real TLS, raw messages."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent.xds.discovery import Kind, Request, read_request
from tests.fakes.grpc_server import running

SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
SERVER_NAME = "istiod.istio-system.svc"


class Pair(NamedTuple):
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Issues certificates."""

    def __init__(self, name: str = "root") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key, dt.timedelta(days=1))
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self._root = builder.add_extension(constraints, critical=True).sign(
            self._key, hashes.SHA256()
        )

    @property
    def root(self) -> bytes:
        return self._root.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, *, lifetime: dt.timedelta = dt.timedelta(hours=1)) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        builder = _builder(_name(name), self._name, key, lifetime)
        leaf = builder.add_extension(names, critical=False).sign(self._key, hashes.SHA256())
        return Pair(
            leaf.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: dt.timedelta
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + lifetime)
    )


class Stream:
    """A client's stream, as the control plane has it."""

    def __init__(self, kind: Kind, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        self.kind = kind
        self.metadata = dict(context.invocation_metadata() or ())
        self.identity: dict[str, Any] = dict(context.auth_context())
        self._context = context
        self._end: asyncio.Future[tuple[grpc.StatusCode, str]] = asyncio.Future()
        self.closed = asyncio.Event()

    async def receive(self) -> bytes | None:
        """Return the next request; none if the client has half-closed."""
        raw = await self._context.read()
        return raw if isinstance(raw, bytes) else None

    async def request(self) -> Request:
        """Return the next request, read."""
        raw = await self.receive()
        assert raw is not None
        return read_request(self.kind, raw)

    async def send(self, message: bytes) -> None:
        await self._context.write(message)

    def end(self, code: grpc.StatusCode = grpc.StatusCode.OK, details: str = "") -> None:
        self._end.set_result((code, details))

    async def serve(self) -> None:
        try:
            code, details = await self._end
            self._context.set_code(code)
            self._context.set_details(details)
        finally:
            self.closed.set()


class ControlPlane:
    """A server; `streams` has those that were opened and not yet taken."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.host = host
        self.port = port
        self.streams: asyncio.Queue[Stream] = asyncio.Queue()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def accept(self) -> Stream:
        return await self.streams.get()

    def handlers(self) -> "grpc.GenericRpcHandler[Any, Any]":
        def method(kind: Kind) -> "grpc.RpcMethodHandler[Any, Any]":
            async def serve(
                _requests: object, context: "grpc.aio.ServicerContext[Any, Any]"
            ) -> None:
                stream = Stream(kind, context)
                self.streams.put_nowait(stream)
                await stream.serve()

            return grpc.stream_stream_rpc_method_handler(serve)

        return grpc.method_handlers_generic_handler(
            SERVICE, {kind.value: method(kind) for kind in Kind}
        )


@contextlib.asynccontextmanager
async def control_plane(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    pair: Pair | None = None,
    client_root: bytes | None = None,
    options: tuple[tuple[str, int], ...] = (),
) -> AsyncIterator[ControlPlane]:
    """Run a control plane: TLS with a pair, client certificates with a root."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), *options])
    plane = ControlPlane(port, host)
    server.add_generic_rpc_handlers((plane.handlers(),))
    if pair is None:
        plane.port = server.add_insecure_port(plane.address)
    else:
        secured = grpc.ssl_server_credentials(
            [(pair.key, pair.certificate)], client_root, client_root is not None
        )
        plane.port = server.add_secure_port(plane.address, secured)
    async with running(server):
        yield plane


def write_pair(directory: Path, pair: Pair) -> None:
    """Write a pair under the names of provisioned certificates."""
    (directory / "cert-chain.pem").write_bytes(pair.certificate)
    (directory / "key.pem").write_bytes(pair.key)
