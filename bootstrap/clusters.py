"""The clusters that every bootstrap has. Source: bootstrap.md sections 5.5 and 5.8."""

from typing import Final

from bootstrap.document import Document
from bootstrap.errors import BootstrapError

TYPES: Final = "type.googleapis.com/"
CREDENTIAL_SOCKET: Final = "./var/run/secrets/credential-uds/files-socket"
WORKLOAD_SOCKETS: Final = "./var/run/secrets/workload-spiffe-uds"
#: Identity, and files by name.
SDS_CLUSTER: Final = "sds-grpc"
#: Files by name where identity comes from somebody else's server.
SDS_FILES_CLUSTER: Final = "sds-files-grpc"
HTTP_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
HTTP2: Final[Document] = {
    "typed_extension_protocol_options": {
        HTTP_OPTIONS: {
            "@type": TYPES + HTTP_OPTIONS,
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
}
#: Envoy's default of 1024 would cap the streams that watch secrets and routes.
UNLIMITED: Final = 100000


def socket_address(address: str, port: int, *, protocol: str = "") -> Document:
    """Return an Address of Envoy's API."""
    named = {"protocol": protocol} if protocol else {}
    return {"socket_address": {**named, "address": address, "port_value": port}}


def pipe(path: str) -> Document:
    """Return the Address of a Unix socket."""
    return {"pipe": {"path": path}}


def cluster(name: str, kind: str, timeout: str, **members: object) -> Document:
    """Return a cluster that balances round robin; the name ends its statistics' tag with ';'."""
    return {
        "name": name,
        "alt_stat_name": f"{name};",
        "type": kind,
        "connect_timeout": timeout,
        "lb_policy": "ROUND_ROBIN",
        **members,
    }


def endpoint(name: str, address: Document) -> Document:
    """Return the load assignment of a cluster with one endpoint."""
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
    return {"cluster_name": name, "endpoints": endpoints}


def local_http(name: str, localhost: str, port: int) -> Document:
    """Return a cluster for a port of this pod."""
    address = socket_address(localhost, port, protocol="TCP")
    return cluster(name, "STATIC", "0.250s", load_assignment=endpoint(name, address))


def unix_grpc(name: str, path: str, **members: object) -> Document:
    """Return a cluster for a gRPC server on a Unix socket."""
    return cluster(
        name, "STATIC", "1s", load_assignment=endpoint(name, pipe(path)), **HTTP2, **members
    )


def sds(socket_file: str) -> Document:
    """Return the cluster that serves this workload's identity.

    Raises:
        BootstrapError: the file is no bare name (bootstrap.md section 1.9).
    """
    if not socket_file or "/" in socket_file or socket_file in (".", ".."):
        problem = f"WORKLOAD_IDENTITY_SOCKET_FILE={socket_file!r}: expected a bare file name"
        raise BootstrapError([problem])
    return unix_grpc(SDS_CLUSTER, f"{WORKLOAD_SOCKETS}/{socket_file}")


def xds(config_path: str) -> Document:
    """Return the cluster of the agent's own ADS server."""
    limits = {
        "max_connections": UNLIMITED,
        "max_pending_requests": UNLIMITED,
        "max_requests": UNLIMITED,
    }
    return unix_grpc(
        "xds-grpc",
        f"{config_path}/XDS",
        max_requests_per_connection=1,
        upstream_connection_options={"tcp_keepalive": {"keepalive_time": 300}},
        circuit_breakers={
            "thresholds": [{"priority": priority, **limits} for priority in ("DEFAULT", "HIGH")]
        },
    )


def local_cluster() -> Document:
    """Return the cluster of this workload's own endpoints, for zone-aware balancing."""
    policy = "envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest"
    result = cluster(
        "local_cluster",
        "EDS",
        "1s",
        eds_cluster_config={
            "eds_config": {"ads": {}, "resource_api_version": "V3"},
            "service_name": "local_cluster",
        },
        load_balancing_policy={
            "policies": [
                {
                    "typed_extension_config": {
                        "name": "envoy.load_balancing_policies.least_request",
                        "typed_config": {
                            "@type": TYPES + policy,
                            "locality_lb_config": {
                                "zone_aware_lb_config": {"min_cluster_size": "1"}
                            },
                        },
                    }
                }
            ]
        },
    )
    del result["lb_policy"]
    return result


def sds_secret(name: str, sds_cluster: str = SDS_CLUSTER, **members: object) -> Document:
    """Return where Envoy gets a secret; `members` go to its `sds_config`."""
    source = {
        "api_type": "GRPC",
        "grpc_services": [{"envoy_grpc": {"cluster_name": sds_cluster}}],
        "set_node_on_first_message_only": True,
        "transport_api_version": "V3",
    }
    config = {"api_config_source": source, "resource_api_version": "V3", **members}
    return {"name": name, "sds_config": config}
