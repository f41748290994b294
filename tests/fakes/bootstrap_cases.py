"""The golden cases of bootstraps: inputs as the reference's harness builds them.

Source: bootstrap.md section 9.
"""

import json
from pathlib import Path

from bootstrap.build import BootstrapInputs
from bootstrap.config import from_document
from bootstrap.node import NodeInputs, build_node
from bootstrap.options import read_options

GOLDEN = Path(__file__).parents[1] / "golden" / "bootstrap"
CASES = sorted(path.name.removesuffix(".input.json") for path in GOLDEN.glob("*.input.json"))
PILOT_SAN = "spiffe://cluster.local/ns/istio-system/sa/istio-pilot-service-account"
#: Has no configuration of its own in the reference's files.
WITHOUT_CONFIG = {"secure_metrics": "default"}


def case_input(name: str) -> dict[str, dict[str, str]]:
    loaded: dict[str, dict[str, str]] = json.loads((GOLDEN / f"{name}.input.json").read_text())
    return loaded


def case_folder(name: str) -> str:
    return f"/tmp/bootstrap/{WITHOUT_CONFIG.get(name, name)}"  # noqa: S108 - written by nobody


def downward(pairs: dict[str, str]) -> str:
    return "".join(f"{key}={json.dumps(value)}\n" for key, value in pairs.items())


def case_inputs(name: str) -> BootstrapInputs:
    """Return what the bootstrap of a case is made of."""
    case = case_input(name)
    config = from_document(
        case["document"]
        | {
            "configPath": case_folder(name),
            "customConfigFile": "envoy_bootstrap.json",
            "statusPort": 15020,
        }
    )
    annotations = case.get("annotations")
    environ = {"ISTIO_METAJSON_LABELS": "{}", "ENVOY_SKIP_DEPRECATED_LOGS": "false"}
    if annotations:
        environ["ISTIO_METAJSON_ANNOTATIONS"] = json.dumps(annotations)
    environ |= case.get("environ", {})
    node, _ = build_node(
        NodeInputs(
            proxy_type="sidecar",
            domain="bar",
            environ=environ,
            addresses=["10.3.3.3", "10.4.4.4", "10.5.5.5", "10.6.6.6", "10.4.4.4"],
            proxy_config=config,
            annotations_text=downward(annotations) if annotations else None,
            version="binary-1.0",
            outlier_log_path="/dev/stdout",
            workload_socket_file="test.sock",
        )
    )
    node = node._replace(
        id="sidecar~1.2.3.4~foo~bar", metadata={**node.metadata, "PILOT_SAN": [PILOT_SAN]}
    )
    return BootstrapInputs(
        config,
        node,
        read_options(environ)[0],
        outlier_log_path="/dev/stdout",
        workload_socket_file="test.sock",
    )
