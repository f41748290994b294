"""A CA that speaks istiod's protocol over TLS, and does as it is told."""

import asyncio
import contextlib
import datetime as dt
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2

from tests.fakes.control_plane import SERVER_NAME, Authority, Pair
from tests.fakes.grpc_server import running

SERVICE = "istio.v1.auth.IstioCertificateService"
PEM = serialization.Encoding.PEM
TURNS = 10


def _messages() -> tuple[Any, Any]:
    """Return the classes of request and response, from their definition and not from ours."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="test_ca.proto", package="istio.v1.auth", syntax="proto3"
    )
    file.dependency.append(struct_pb2.DESCRIPTOR.name)
    request = file.message_type.add(name="IstioCertificateRequest")
    request.field.add(name="csr", number=1, type=kinds.TYPE_STRING, label=1)
    request.field.add(name="validity_duration", number=3, type=kinds.TYPE_INT64, label=1)
    request.field.add(
        name="metadata",
        number=4,
        type=kinds.TYPE_MESSAGE,
        type_name=".google.protobuf.Struct",
        label=1,
    )
    response = file.message_type.add(name="IstioCertificateResponse")
    response.field.add(name="cert_chain", number=1, type=kinds.TYPE_STRING, label=3)
    pool = descriptor_pool.Default()
    pool.Add(file)
    found = (
        pool.FindMessageTypeByName(f"istio.v1.auth.IstioCertificate{name}")
        for name in ("Request", "Response")
    )
    first, second = (message_factory.GetMessageClass(each) for each in found)
    return first, second


REQUEST, RESPONSE = _messages()


class CsrCall(NamedTuple):
    """What a client asked for, and who it is."""

    csr: x509.CertificateSigningRequest
    ttl_seconds: int
    signer: str
    metadata: dict[str, str]
    #: The SPIFFE ID in the client's certificate; empty without one.
    identity: str

    @property
    def token(self) -> str:
        return self.metadata.get("authorization", "").removeprefix("Bearer ")


class RefusedError(Exception):
    """The CA answers by a gRPC status."""

    def __init__(self, code: grpc.StatusCode, details: str = "refused") -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class Root:
    """A root, which signs what it is given."""

    def __init__(self, name: str = "mesh root") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        now = dt.datetime.now(dt.UTC)
        self.certificate = (
            self._builder(self.name, self.key.public_key(), now, now + dt.timedelta(days=10))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        self.pem = self.certificate.public_bytes(PEM).decode()

    def sign(
        self,
        public_key: CertificatePublicKeyTypes,
        names: Sequence[x509.GeneralName],
        *,
        seconds: float = 3600,
        starts_in: float = -60,
    ) -> str:
        """Return a leaf, PEM. notAfter is in whole seconds, rounded up."""
        now = dt.datetime.now(dt.UTC)
        end = (now + dt.timedelta(seconds=seconds)).timestamp()
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "workload")])
        leaf = (
            self._builder(
                subject,
                public_key,
                now + dt.timedelta(seconds=starts_in),
                dt.datetime.fromtimestamp(-(-end // 1), dt.UTC),
            )
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        return leaf.public_bytes(PEM).decode()

    def answer(self, call: CsrCall, **how: float) -> list[str]:
        """Return the chain for a request: a leaf for the identity asked for, and this root."""
        san = call.csr.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        how.setdefault("seconds", call.ttl_seconds)
        return [self.sign(call.csr.public_key(), list(san.value), **how), self.pem]

    def pair(self, uri: str, **how: float) -> Pair:
        """Return a certificate for a name, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = self.sign(key.public_key(), [x509.UniformResourceIdentifier(uri)], **how)
        return Pair(
            leaf.encode(),
            key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        )

    def revoke(self, *serials: int) -> bytes:
        """Return a CRL, PEM."""
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(now - dt.timedelta(hours=1))
            .next_update(now + dt.timedelta(days=1))
        )
        for serial in serials:
            revoked = x509.RevokedCertificateBuilder().serial_number(serial)
            builder = builder.add_revoked_certificate(
                revoked.revocation_date(now - dt.timedelta(minutes=1)).build()
            )
        return builder.sign(self.key, hashes.SHA256()).public_bytes(PEM)

    def _builder(
        self,
        subject: x509.Name,
        public_key: CertificatePublicKeyTypes,
        start: dt.datetime,
        end: dt.datetime,
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
        )


Respond = Callable[[CsrCall], list[str] | Awaitable[list[str]]]


class FakeCa:
    """A CA; `respond` answers each call, and `calls` has them all."""

    def __init__(self, respond: Respond) -> None:
        self.port = 0
        self.respond = respond
        self.calls: list[CsrCall] = []
        self.called = asyncio.Event()

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    async def create(
        self, raw: bytes, context: "grpc.aio.ServicerContext[Any, Any]", identity: str
    ) -> bytes:
        request = REQUEST.FromString(raw)
        metadata = {key: str(value) for key, value in context.invocation_metadata() or ()}
        call = CsrCall(
            csr=x509.load_pem_x509_csr(request.csr.encode()),
            ttl_seconds=request.validity_duration,
            signer=request.metadata["CertSigner"],
            metadata=metadata,
            identity=identity,
        )
        self.calls.append(call)
        self.called.set()
        try:
            answer = self.respond(call)
            chain = answer if isinstance(answer, list) else await answer
        except RefusedError as error:
            await context.abort(error.code, error.details)
        serialised: bytes = RESPONSE(cert_chain=chain).SerializeToString()
        return serialised

    async def until_called(self, times: int) -> None:
        """Return once there were so many calls."""
        async with asyncio.timeout(20):
            while len(self.calls) < times:
                self.called.clear()
                await self.called.wait()


@contextlib.asynccontextmanager
async def fake_ca(
    respond: Respond,
    directory: Path,
    *,
    authority: Authority | None = None,
    client_root: str = "",
    port: int = 0,
) -> AsyncIterator[FakeCa]:
    """Run a CA on the loopback.

    Args:
        respond: answers each call.
        directory: where it may keep files.
        authority: who vouches for its TLS certificate; none for plaintext.
        client_root: whom to believe about clients, whose certificates are optional, as istiod's.
        port: where to listen; any, if 0.
    """
    ca = FakeCa(respond)
    async with contextlib.AsyncExitStack() as stack:
        if authority is None:
            ca.port = await stack.enter_async_context(_serving(ca, "", f"127.0.0.1:{port}"))
        else:
            front = await stack.enter_async_context(_tls_front(ca, directory, port, authority))
            if client_root:
                front.verify_mode = ssl.CERT_OPTIONAL
                front.load_verify_locations(cadata=client_root)
        yield ca


@contextlib.asynccontextmanager
async def _serving(ca: FakeCa, identity: str, address: str) -> AsyncIterator[int]:
    """Serve without TLS those who are known to be `identity`; yield the port."""
    server = grpc.aio.server()

    async def create(raw: bytes, context: "grpc.aio.ServicerContext[Any, Any]") -> bytes:
        return await ca.create(raw, context, identity)

    handler = grpc.unary_unary_rpc_method_handler(create)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"CreateCertificate": handler}),)
    )
    port = server.add_insecure_port(address)
    async with running(server):
        yield port


@contextlib.asynccontextmanager
async def _tls_front(
    ca: FakeCa, directory: Path, port: int, authority: Authority
) -> AsyncIterator[ssl.SSLContext]:
    """Take TLS off: gRPC for Python cannot ask a client for a certificate without requiring it."""
    pair = authority.issue(SERVER_NAME)
    write_files(directory, pair)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert-chain.pem", directory / "key.pem")
    context.set_alpn_protocols(["h2"])
    async with contextlib.AsyncExitStack() as stack:
        backends: dict[str, str] = {}
        making = asyncio.Lock()
        connections: set[asyncio.Task[Any]] = set()

        async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task
            connections.add(task)
            task.add_done_callback(connections.discard)
            transports = [writer.transport]
            try:
                # Not by the server: of a handshake that is under way at the end nobody would know.
                await writer.start_tls(context)
                transports.append(writer.transport)
                identity = _identity(writer)
                async with making:
                    if identity not in backends:
                        path = f"{directory}/{len(backends)}.sock"
                        await stack.enter_async_context(_serving(ca, identity, f"unix:{path}"))
                        backends[identity] = path
                behind = await asyncio.open_unix_connection(backends[identity])
                transports.append(behind[1].transport)
                await asyncio.gather(_pump(reader, behind[1]), _pump(behind[0], writer))
            except OSError:
                return  # the CA is about to close
            finally:
                for each in transports:
                    with contextlib.suppress(AttributeError):  # Python 3.11: it is gone already
                        each.abort()

        server = await asyncio.start_server(pass_on, "127.0.0.1", port)
        ca.port = server.sockets[0].getsockname()[1]
        async with server:
            yield context
        await _end(connections)


def _identity(writer: asyncio.StreamWriter) -> str:
    """Return the URI in the client's certificate, if it has any."""
    certificate: Any = writer.get_extra_info("peercert") or {}
    names = (value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI")
    return next(names, "")


async def _end(connections: set[asyncio.Task[Any]]) -> None:
    """End what is open; clients are gone by now, but handshakes of theirs end in the next turns."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
        for task in connections:
            if not task.cancelling():  # a second time would break off how it ends
                task.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def write_files(directory: Path, pair: Pair, root: str | None = None) -> None:
    """Write chain, key and, if given, root under their usual names."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cert-chain.pem").write_bytes(pair.certificate)
    (directory / "key.pem").write_bytes(pair.key)
    if root is not None:
        (directory / "root-cert.pem").write_text(root)


async def main(directory: Path, port: int) -> None:
    """Issue certificates until killed; the root of the TLS certificate goes into the directory."""
    authority, root = Authority("ca"), Root()
    async with fake_ca(root.answer, directory / "ca", authority=authority, port=port):
        (directory / "ca-root.pem").write_bytes(authority.root)
        print("listening", flush=True)  # noqa: T201 - whoever started us waits for it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
