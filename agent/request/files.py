"""The pod's own configuration, read only when `request` is to ask an unusual port.

Source: bootstrap.md sections 3.1 and 8, defect 42.
"""

from collections.abc import Mapping
from typing import Final

from bootstrap.config import Sources, resolve_proxy_config
from bootstrap.downward import parse_downward
from bootstrap.errors import BootstrapError
from bootstrap.files import read_mesh_config, read_pod_file

MESH_CONFIG: Final = "./etc/istio/config/mesh"
ANNOTATIONS: Final = "./etc/istio/pod/annotations"


def configured_ports(environ: Mapping[str, str]) -> tuple[int, ...]:
    """Return Envoy's admin port and the status port; empty where the configuration is unusable.

    `proxy` has said what is wrong with it; here it only means that no further port is known.
    """
    annotations, _ = read_pod_file(ANNOTATIONS)
    try:
        sources = Sources(
            mesh_config=read_mesh_config(MESH_CONFIG),
            environment=environ.get("PROXY_CONFIG", ""),
            annotations=parse_downward(annotations or "")[0],
        )
        config, _ = resolve_proxy_config(sources)
    except BootstrapError:
        return ()
    return tuple(port for port in (config.proxy_admin_port, config.status_port) if port)
