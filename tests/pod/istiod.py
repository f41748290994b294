"""An istiod look-alike: ADS of both kinds and the CA, over TLS, for whoever has a good token.

It knows a mesh (mesh.py) and pushes what changes of it. A stream and a request for a certificate
need a token of a service account, for the audience `istio-ca`; a certificate is signed for the
identity that the token proves, and for no other.
"""

import asyncio
import base64
import contextlib
import functools
import hashlib
import hmac
import importlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
    Resource,
)
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.json_format import ParseDict

from agent.xds.discovery import Kind
from tests.fakes.ca import REQUEST, RESPONSE, Root
from tests.fakes.ca import SERVICE as CA
from tests.fakes.control_plane import SERVICE as ADS
from tests.fakes.dns_table import kubernetes, serialised
from tests.fakes.grpc_server import running
from tests.pod.environment import Placed
from tests.pod.mesh import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    NAME_TABLE,
    TRUST_DOMAIN,
    Mesh,
    Proxy,
    resources,
)

AUDIENCE: Final = "istio-ca"
#: In which a push goes out: what is referred to comes first.
ORDER: Final = (CLUSTER, ENDPOINTS, LISTENER, NAME_TABLE)
#: Of the types in the resources; their import makes them known.
MODULES: Final = (
    "config.cluster.v3.cluster_pb2",
    "config.endpoint.v3.endpoint_pb2",
    "config.listener.v3.listener_pb2",
    "extensions.filters.http.router.v3.router_pb2",
    "extensions.filters.listener.original_dst.v3.original_dst_pb2",
    "extensions.filters.listener.original_src.v3.original_src_pb2",
    "extensions.filters.listener.tls_inspector.v3.tls_inspector_pb2",
    "extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2",
    "extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2",
    "extensions.transport_sockets.tls.v3.tls_pb2",
    "extensions.upstreams.http.v3.http_protocol_options_pb2",
)
Found = Mapping[str, Mapping[str, Packed]]


class Account(NamedTuple):
    """Who a token belongs to."""

    namespace: str
    name: str
    pod: str

    @property
    def identity(self) -> str:
        return f"spiffe://{TRUST_DOMAIN}/ns/{self.namespace}/sa/{self.name}"


class Tokens:
    """The API server's: makes tokens of service accounts, and knows its own again."""

    def __init__(self) -> None:
        self._secret = b"known to the API server alone"

    def make(self, placed: Placed, audience: str) -> str:
        """Return a token of a pod's account."""
        workload, now = placed.workload, int(time.time())
        name = workload.service_account
        claims = {
            "aud": [audience],
            "exp": now + 43200,
            "iat": now,
            "iss": "https://kubernetes.default.svc.cluster.local",
            "kubernetes.io": {
                "namespace": workload.namespace,
                "pod": {"name": placed.name, "uid": placed.uid},
                "serviceaccount": {"name": name},
            },
            "sub": f"system:serviceaccount:{workload.namespace}:{name}",
        }
        said = f"{_encode({'alg': 'HS256', 'typ': 'JWT'})}.{_encode(claims)}"
        return f"{said}.{self._sign(said)}"

    def review(self, token: str) -> Account | None:
        """Return whose token it is; none for one that is not ours, or not meant for istiod."""
        said, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature, self._sign(said)):
            return None
        claims = json.loads(base64.urlsafe_b64decode(said.partition(".")[2] + "=="))
        if AUDIENCE not in claims["aud"] or claims["exp"] < time.time():
            return None
        found = claims["kubernetes.io"]
        return Account(found["namespace"], found["serviceaccount"]["name"], found["pod"]["name"])

    def _sign(self, said: str) -> str:
        digest = hmac.digest(self._secret, said.encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _encode(part: Mapping[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


class Stream:
    """What one Envoy has asked for, and was sent."""

    def __init__(self, istiod: "Istiod") -> None:
        self.istiod = istiod
        self.proxy: Proxy | None = None
        self.changed = asyncio.Event()
        self.is_over = False
        self.names: dict[str, set[str]] = {}  #: by type; empty: all there are
        self.sent: dict[str, dict[str, Packed]] = {}

    def request(self, kind: str, names: set[str], node: Node, refusal: str) -> None:
        """Take what an Envoy asks for, or says."""
        if refusal:
            self.istiod.refusals.append(f"{kind}: {refusal}")
        if node.id:
            self.proxy = read_node(node)
        self.names[kind] = names
        self.changed.set()

    async def next_change(self) -> bool:
        """Return once something may be to be sent; false if the stream is over."""
        await self.changed.wait()
        self.changed.clear()
        return not self.is_over

    def due(self) -> Iterator[tuple[str, dict[str, Packed], dict[str, Packed]]]:
        """Yield what is to be sent: a type, its resources, and what was sent of it before."""
        if self.proxy is None:
            return
        found = self.istiod.found(self.proxy)
        for kind in ORDER:
            if kind in self.names:
                names = self.names[kind]
                now = {k: v for k, v in found[kind].items() if not names or k in names}
                before = self.sent.get(kind)
                if now != before:
                    self.sent[kind] = now
                    yield kind, now, before or {}


class Istiod:
    """What serves; `mesh` is set by `change`."""

    def __init__(self, root: Root, tokens: Tokens) -> None:
        self.root = root
        self.tokens = tokens
        self.mesh = Mesh()
        self.refusals: list[str] = []  #: by Envoys
        self.identities: list[str] = []  #: of certificates, in the order of their requests
        self._streams: set[Stream] = set()
        self._nonces = 0
        for name in MODULES:
            importlib.import_module(f"envoy.{name}")

    def handlers(self) -> "tuple[grpc.GenericRpcHandler[Any, Any], ...]":
        """Return what serves ADS, and what serves the CA."""
        kinds = {
            Kind.SOTW: (self.serve_all, DiscoveryRequest, DiscoveryResponse),
            Kind.DELTA: (self.serve_changes, DeltaDiscoveryRequest, DeltaDiscoveryResponse),
        }
        streams = {
            kind.value: grpc.stream_stream_rpc_method_handler(
                serve, request.FromString, response.SerializeToString
            )
            for kind, (serve, request, response) in kinds.items()
        }
        signing = {
            "CreateCertificate": grpc.unary_unary_rpc_method_handler(self.create_certificate)
        }
        return (
            grpc.method_handlers_generic_handler(ADS, streams),
            grpc.method_handlers_generic_handler(CA, signing),
        )

    def change(self, mesh: Mesh) -> None:
        """Tell all Envoys of another mesh."""
        self.mesh = mesh
        for stream in self._streams:
            stream.changed.set()

    def close(self) -> None:
        """End all streams."""
        for stream in self._streams:
            stream.is_over = True
            stream.changed.set()

    def found(self, proxy: Proxy) -> Found:
        """Return what there is for an Envoy, by type and name."""
        made = {
            kind: {name: _pack(kind, json.dumps(each)) for name, each in by_name.items()}
            for kind, by_name in resources(self.mesh, proxy).items()
        }
        table = (kubernetes(s.name, s.namespace, *s.addresses) for s in self.mesh.services)
        names = Packed(type_url=NAME_TABLE, value=serialised(table))
        return {**made, NAME_TABLE: {"": names}}

    async def serve_all(
        self,
        requests: AsyncIterator[DiscoveryRequest],
        context: "grpc.aio.ServicerContext[Any, Any]",
    ) -> AsyncIterator[DiscoveryResponse]:
        def take(stream: Stream, request: DiscoveryRequest) -> None:
            refusal = request.error_detail.message
            names = set(request.resource_names)
            stream.request(request.type_url, names, request.node, refusal)

        async with self._serving(requests, context, take) as stream:
            while await stream.next_change():
                for kind, now, _ in stream.due():
                    yield DiscoveryResponse(
                        version_info=self._nonce(),
                        nonce=self._nonce(),
                        type_url=kind,
                        resources=list(now.values()),
                    )

    async def serve_changes(
        self,
        requests: AsyncIterator[DeltaDiscoveryRequest],
        context: "grpc.aio.ServicerContext[Any, Any]",
    ) -> AsyncIterator[DeltaDiscoveryResponse]:
        def take(stream: Stream, request: DeltaDiscoveryRequest) -> None:
            names = stream.names.get(request.type_url, set())
            names = (names | set(request.resource_names_subscribe)) - {"*"}
            names -= set(request.resource_names_unsubscribe)
            refusal = request.error_detail.message
            stream.request(request.type_url, names, request.node, refusal)

        async with self._serving(requests, context, take) as stream:
            while await stream.next_change():
                for kind, now, before in stream.due():
                    yield DeltaDiscoveryResponse(
                        nonce=self._nonce(),
                        type_url=kind,
                        resources=[
                            Resource(name=name, version=self._nonce(), resource=each)
                            for name, each in now.items()
                            if each != before.get(name)
                        ],
                        removed_resources=sorted(before.keys() - now.keys()),
                    )

    @contextlib.asynccontextmanager
    async def _serving(
        self,
        requests: AsyncIterator[Any],
        context: "grpc.aio.ServicerContext[Any, Any]",
        take: Callable[[Stream, Any], None],
    ) -> AsyncIterator[Stream]:
        """Yield a stream that takes the requests of whoever has a good token."""
        account = await self._authenticate(context)
        stream = Stream(self)

        async def read() -> None:
            async for request in requests:
                if request.node.id and account.pod not in request.node.id:
                    self.refusals.append(f"{account.pod} says that it is {request.node.id}")
                take(stream, request)

        reading = asyncio.create_task(read())
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)
            reading.cancel()

    async def _authenticate(self, context: "grpc.aio.ServicerContext[Any, Any]") -> Account:
        metadata = {key: str(value) for key, value in context.invocation_metadata() or ()}
        token = metadata.get("authorization", "").removeprefix("Bearer ")
        account = self.tokens.review(token)
        if account is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "authentication failure")
        return account

    async def create_certificate(
        self, raw: bytes, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> bytes:
        """Sign for the identity of the token, whatever was asked for."""
        account = await self._authenticate(context)
        request = REQUEST.FromString(raw)
        csr = x509.load_pem_x509_csr(request.csr.encode())
        name = x509.UniformResourceIdentifier(account.identity)
        leaf = self.root.sign(csr.public_key(), [name], seconds=request.validity_duration)
        self.identities.append(account.identity)
        made: bytes = RESPONSE(cert_chain=[leaf, self.root.pem]).SerializeToString()
        return made

    def _nonce(self) -> str:
        self._nonces += 1
        return str(self._nonces)


@functools.cache
def _pack(kind: str, resource: str) -> Packed:
    packed = Packed()
    ParseDict({"@type": kind, **json.loads(resource)}, packed)
    return packed


def read_node(node: Node) -> Proxy:
    """Return an Envoy by its node: `kind~ip~pod.namespace~domain`, and its metadata."""
    kind, ip, pod, _ = node.id.split("~")
    metadata = node.metadata.fields
    ips = tuple((metadata["INSTANCE_IPS"].string_value or ip).split(","))
    is_transparent = metadata["INTERCEPTION_MODE"].string_value == "TPROXY"
    return Proxy(kind, ips, pod.partition(".")[2], is_transparent=is_transparent)


@contextlib.asynccontextmanager
async def serving(
    istiod: Istiod, hosts: Mapping[int, str], *addresses: str
) -> AsyncIterator[list[int]]:
    """Serve on ports of addresses, by TLS under a name for each; yield the ports."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(istiod.handlers())
    ports = []
    for port, host in hosts.items():
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = istiod.root.sign(key.public_key(), [x509.DNSName(host)])
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        secured = grpc.ssl_server_credentials([(private, certificate.encode())])
        ports += [server.add_secure_port(f"{each}:{port}", secured) for each in addresses]
    async with running(server, 1):
        try:
            yield ports
        finally:
            istiod.close()
