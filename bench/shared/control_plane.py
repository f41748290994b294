"""A control plane with one cluster and one listener: `python control_plane.py FOLDER SOCKET [MS]`.

Serves ADS, both variants, with TLS on localhost:15012 and, for an Envoy without an agent, in clear
on a Unix socket. Sends each type once per stream, and never looks at what it is told. On the same
port it signs whatever certificate is asked for. With MS it takes so many milliseconds for that, and
the listener is one of a mesh: Envoy is not ready before the agent gave it certificate and roots.
Writes its root certificate to FOLDER/root-cert.pem and `listening` to standard output.
"""

import datetime as dt
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.tcp_proxy.v3.tcp_proxy_pb2 import TcpProxy
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import DownstreamTlsContext
from envoy.service.discovery.v3 import ads_pb2_grpc
from envoy.service.discovery.v3.discovery_pb2 import (
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
    Resource,
)
from google.protobuf.any_pb2 import Any
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from agent.protobuf.wire import fields, message

ADDRESS = "localhost:15012"
#: What the agent expects of a control plane on localhost.
SERVER_NAME = "istiod.istio-system.svc"


def packed(message: Message) -> Any:
    value = Any()
    value.Pack(message)
    return value


def resources(*, is_mesh: bool) -> dict[str, tuple[str, Any]]:
    """Return the resource of each type, by type URL, with its name."""
    cluster = ParseDict({"name": "service", "type": "STATIC"}, Cluster())
    proxy = TcpProxy(stat_prefix="service", cluster="service")
    filters = [{"name": "envoy.filters.network.tcp_proxy"}]
    address = {"socketAddress": {"address": "127.0.0.1", "portValue": 15001}}
    listener = ParseDict(
        {"name": "virtualOutbound", "address": address, "filterChains": [{"filters": filters}]},
        Listener(),
    )
    listener.filter_chains[0].filters[0].typed_config.CopyFrom(packed(proxy))
    if is_mesh:
        socket = listener.filter_chains[0].transport_socket
        socket.name = "envoy.transport_sockets.tls"
        socket.typed_config.CopyFrom(packed(mutual_tls()))
    return {
        packed(message).type_url: (message.name, packed(message)) for message in (cluster, listener)
    }


def secret(name: str) -> dict[str, object]:
    """Return what has Envoy ask the agent for a secret, as istiod writes it."""
    source = {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "set_node_on_first_message_only": True,
        "grpc_services": [{"envoy_grpc": {"cluster_name": "sds-grpc"}}],
    }
    config = {
        "api_config_source": source,
        "resource_api_version": "V3",
        "initial_fetch_timeout": "0s",
    }
    return {"name": name, "sds_config": config}


def mutual_tls() -> DownstreamTlsContext:
    """Return what makes a listener talk to the mesh alone."""
    validation = {
        "default_validation_context": {},
        "validation_context_sds_secret_config": secret("ROOTCA"),
    }
    common = {
        "tls_certificate_sds_secret_configs": [secret("default")],
        "combined_validation_context": validation,
    }
    context = {"common_tls_context": common, "require_client_certificate": True}
    return ParseDict(context, DownstreamTlsContext())


class Discovery(ads_pb2_grpc.AggregatedDiscoveryServiceServicer):
    """Answers the first request of a stream for each type."""

    def __init__(self, *, is_mesh: bool) -> None:
        self.resources = resources(is_mesh=is_mesh)

    def StreamAggregatedResources(  # noqa: N802 - the service's name
        self, requests: Iterator[DiscoveryRequest], _: grpc.ServicerContext
    ) -> Iterator[DiscoveryResponse]:
        for kind in self.first_of_each(requests):
            _, resource = self.resources[kind]
            yield DiscoveryResponse(
                version_info="1", nonce="1", type_url=kind, resources=[resource]
            )

    def DeltaAggregatedResources(  # noqa: N802 - the service's name
        self, requests: Iterator[DeltaDiscoveryRequest], _: grpc.ServicerContext
    ) -> Iterator[DeltaDiscoveryResponse]:
        for kind in self.first_of_each(requests):
            name, resource = self.resources[kind]
            described = Resource(name=name, version="1", resource=resource)
            yield DeltaDiscoveryResponse(nonce="1", type_url=kind, resources=[described])

    def first_of_each(
        self, requests: Iterator[DiscoveryRequest] | Iterator[DeltaDiscoveryRequest]
    ) -> Iterator[str]:
        seen = set()
        for request in requests:
            if request.type_url in self.resources and request.type_url not in seen:
                seen.add(request.type_url)
                yield request.type_url


class Authority:
    """A root, which is also the server's certificate, and signs for others, in so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bench")])
        names = x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = self._builder(self._key.public_key(), names)
        signed = builder.add_extension(constraints, critical=True).sign(self._key, hashes.SHA256())
        self.pem = signed.public_bytes(serialization.Encoding.PEM)

    def credentials(self) -> grpc.ServerCredentials:
        private = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return grpc.ssl_server_credentials([(private, self.pem)])

    def sign(self, raw: bytes, _: grpc.ServicerContext) -> bytes:
        """Answer an IstioCertificateRequest: its first field is the CSR."""
        time.sleep(self._seconds)
        csr = next(raw[start:end] for number, _, start, end in fields(raw) if number == 1)
        request = x509.load_pem_x509_csr(csr)
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        signed = self._builder(request.public_key(), names).sign(self._key, hashes.SHA256())
        return message((1, signed.public_bytes(serialization.Encoding.PEM)), (1, self.pem))

    def handler(self) -> "grpc.GenericRpcHandler[bytes, bytes]":
        method = grpc.unary_unary_rpc_method_handler(self.sign)
        service = "istio.v1.auth.IstioCertificateService"
        return grpc.method_handlers_generic_handler(service, {"CreateCertificate": method})

    def _builder(
        self, key: CertificatePublicKeyTypes, names: x509.SubjectAlternativeName
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(names, critical=False)
        )


def main(folder: str, socket: str, milliseconds: str = "") -> None:
    """Serve until killed."""
    server = grpc.server(ThreadPoolExecutor(16))
    ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(
        Discovery(is_mesh=bool(milliseconds)), server
    )
    authority = Authority(float(milliseconds or 0) / 1000)
    Path(folder, "root-cert.pem").write_bytes(authority.pem)
    server.add_generic_rpc_handlers((authority.handler(),))
    server.add_secure_port(ADDRESS, authority.credentials())
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    print("listening", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
