"""The bootstrap of gRPC applications that speak xDS themselves.

Source: bootstrap.md section 7.
"""

from collections.abc import Iterator
from typing import Final

from bootstrap.config import clean_path
from bootstrap.document import canonical_json, parse_object
from bootstrap.node import Node

LISTENER_TEMPLATE: Final = "xds.istio.io/grpc/lds/inbound/%s"


def grpc_bootstrap(node: Node, config_path: str, *, certificates: str = "") -> str:
    """Return the text of the gRPC bootstrap file.

    Args:
        node: of which gRPC gets the typed metadata.
        config_path: directory of the agent's ADS socket.
        certificates: OUTPUT_CERTS, where the workload's certificates are written; '' for none.
    """
    document: dict[str, object] = {
        "xds_servers": [
            {
                "server_uri": "unix:///" + clean_path(f"{config_path}/XDS"),
                "channel_creds": [{"type": "insecure"}],
                "server_features": ["xds_v3"],
            }
        ],
        "node": {
            "id": node.id,
            "locality": node.locality,
            "metadata": {**node.typed_metadata(), "GENERATOR": "grpc"},
        },
        "server_listener_resource_name_template": LISTENER_TEMPLATE,
    }
    if certificates:
        document["certificate_providers"] = {
            "default": {
                "plugin_name": "file_watcher",
                "config": {
                    "certificate_file": f"{certificates}/cert-chain.pem",
                    "private_key_file": f"{certificates}/key.pem",
                    "ca_certificate_file": f"{certificates}/root-cert.pem",
                    "refresh_interval": "900s",
                },
            }
        }
    return canonical_json(document, indent=2)


def certificate_files(text: str) -> tuple[str, ...]:
    """Return the files that a gRPC bootstrap expects to exist, which others write.

    Raises:
        ValueError: the text is no JSON object.

    Source: status-lifecycle.md section 6.5.
    """
    return tuple(_certificate_files(parse_object(text)))


def _certificate_files(document: dict[str, object]) -> Iterator[str]:
    providers = document.get("certificate_providers")
    for provider in providers.values() if isinstance(providers, dict) else ():
        if not isinstance(provider, dict) or provider.get("plugin_name") != "file_watcher":
            continue
        config = provider.get("config")
        for key in ("certificate_file", "private_key_file", "ca_certificate_file"):
            if isinstance(config, dict) and isinstance(config.get(key), str):
                yield config[key]
