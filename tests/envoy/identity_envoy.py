"""A real Envoy in a namespace, with its certificates from an SDS socket."""

import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from tests.envoy.xds_envoy import H2, RunningEnvoy, envoy_of

TYPE = "type.googleapis.com/envoy"
TLS = f"{TYPE}.extensions.transport_sockets.tls.v3"
HTTP = f"{TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = {
    "name": "envoy.filters.http.router",
    "typed_config": {"@type": f"{TYPE}.extensions.filters.http.router.v3.Router"},
}
TLS_PORT = 8443
Json = dict[str, Any]


def pipe(path: Path) -> Json:
    return {"pipe": {"path": str(path)}}


def tcp(address: str) -> Json:
    return {"socket_address": {"address": address, "port_value": TLS_PORT}}


def secret(name: str) -> Json:
    """Return what has Envoy ask for a secret, as istiod writes it."""
    source = {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "set_node_on_first_message_only": True,
        "grpc_services": [{"envoy_grpc": {"cluster_name": "sds-grpc"}}],
    }
    return {
        "name": name,
        "sds_config": {
            "api_config_source": source,
            "resource_api_version": "V3",
            "initial_fetch_timeout": "0s",
        },
    }


def mutual_tls(context: str, **more: Any) -> Json:  # noqa: ANN401 - JSON
    common = {
        "tls_certificate_sds_secret_configs": [secret("default")],
        "combined_validation_context": {
            "default_validation_context": {},
            "validation_context_sds_secret_config": secret("ROOTCA"),
        },
    }
    config = {"@type": f"{TLS}.{context}", "common_tls_context": common, **more}
    return {"name": "envoy.transport_sockets.tls", "typed_config": config}


def cluster(name: str, address: Json, **more: Any) -> Json:  # noqa: ANN401 - JSON
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
    assignment = {"cluster_name": name, "endpoints": endpoints}
    return {"name": name, "connect_timeout": "1s", "load_assignment": assignment, **more}


def listener(address: Json, route: Json, **more: Any) -> Json:  # noqa: ANN401 - JSON
    host = {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, **route}]}
    manager = {
        "@type": HTTP,
        "stat_prefix": "in",
        "route_config": {"virtual_hosts": [host]},
        "http_filters": [ROUTER],
    }
    chain = {"filters": [{"name": "http", "typed_config": manager}], **more}
    return {"name": "in", "address": address, "filter_chains": [chain]}


def bootstrap(
    directory: Path, sds_socket: Path, listeners: list[Json], clusters: list[Json]
) -> Json:
    protocol = {
        H2: {
            "@type": f"type.googleapis.com/{H2}",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
    sds = cluster("sds-grpc", pipe(sds_socket), typed_extension_protocol_options=protocol)
    return {
        "node": {"id": "sidecar~10.0.0.1~pod.ns~ns.svc.cluster.local", "cluster": "pod.ns"},
        "admin": {"address": pipe(directory / "admin")},
        "static_resources": {"listeners": listeners, "clusters": [sds, *clusters]},
    }


def serving_side(directory: Path, sds_socket: Path, address: str) -> Json:
    """Return an Envoy that answers whoever has a certificate of the mesh."""
    socket = mutual_tls("DownstreamTlsContext", require_client_certificate=True)
    answer = {"direct_response": {"status": 200, "body": {"inline_string": "hello"}}}
    return bootstrap(
        directory, sds_socket, [listener(tcp(address), answer, transport_socket=socket)], []
    )


def calling_side(directory: Path, sds_socket: Path, address: str) -> Json:
    """Return an Envoy that passes on what comes on a socket, each request by a new handshake."""
    peer = cluster(
        "peer",
        tcp(address),
        transport_socket=mutual_tls("UpstreamTlsContext"),
        max_requests_per_connection=1,
    )
    inside = listener(pipe(directory / "in"), {"route": {"cluster": "peer"}})
    return bootstrap(directory, sds_socket, [inside], [peer])


class MeshEnvoy(RunningEnvoy):
    """An Envoy, and what it has of certificates."""

    async def serials(self) -> set[int]:
        """Return the serial numbers of the certificates it uses: one, but while they change."""
        return await self._serials("cert_chain")

    async def trusted(self) -> set[int]:
        """Return the serial numbers of the roots it trusts."""
        return await self._serials("ca_cert")

    async def _serials(self, kind: str) -> set[int]:
        found = json.loads(await self.admin("certs"))["certificates"]
        return {int(each["serial_number"], 16) for one in found for each in one[kind]}


@contextlib.asynccontextmanager
async def mesh_envoy(
    directory: Path, config: Json, wrapper: Sequence[str] = ()
) -> AsyncIterator[MeshEnvoy]:
    """Run Envoy on a static configuration; `wrapper` comes before its command."""
    async with envoy_of(MeshEnvoy, directory, config, wrapper) as made:
        await made.live()
        yield made
