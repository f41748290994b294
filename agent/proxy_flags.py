"""The flags of `agent proxy`.

Source: bootstrap.md section 1.4.
"""

from typing import Final

from iptables.flags import GLOBAL_FLAGS, Flag

PROXY_TYPES: Final = ("sidecar", "router", "waypoint", "ztunnel", "agentgateway")
HELP: Final = (
    "agent proxy [sidecar|router|waypoint] [flags]",
    (
        "Run the agent and its Envoy until Envoy ends. Unknown flags are ignored.\n"
        "\n"
        "POD_NAME, POD_NAMESPACE and INSTANCE_IP say which pod this is, PROXY_CONFIG, the mesh "
        "file and the annotation proxy.istio.io/config how its Envoy runs; docs/settings.md lists "
        "all variables. The exit code is 0 for an end that was asked for, Envoy's own "
        "(128 + signal) where it died by itself, and 255 for what cannot be started, with a line "
        "for each reason."
    ),
)
PROXY_FLAGS: Final = (
    Flag("domain", "string", "", "DNS suffix of the node; empty: POD_NAMESPACE.svc.cluster.local"),
    Flag("meshConfig", "string", "./etc/istio/config/mesh", "mesh configuration file, optional"),
    Flag("stsPort", "int", 0, "metadata STS_PORT when not 0; no server is started"),
    Flag("tokenManagerPlugin", "string", "", "accepted, without effect"),
    Flag("serviceCluster", "string", "istio-proxy", "used when serviceCluster resolves to nothing"),
    Flag(
        "proxyLogLevel",
        "string",
        "warning",
        "Envoy's log level (trace, debug, info, warning, error, critical, off), "
        "optionally with component:level items",
    ),
    Flag("proxyComponentLogLevel", "string", "", "log levels of Envoy's components"),
    Flag("concurrency", "int", 0, "Envoy's worker threads; use concurrency in PROXY_CONFIG"),
    Flag("templateFile", "string", "", "bootstrap template; customConfigFile wins"),
    Flag("outlierLogPath", "string", "", "file of the outlier event log"),
    Flag(
        "profiling",
        "bool",
        default=True,
        help="serve profiling on the status port, to loopback only",
    ),
    *GLOBAL_FLAGS,
)
