"""ProxyConfig and the node's metadata as Go's structs: every field is there, if only as a zero.

Source: istio.mesh.v1alpha1.ProxyConfig; bootstrap.md section 4.4.
"""

from collections.abc import Mapping
from typing import Final

from bootstrap.node import SWITCH_KEYS, TEXT_KEYS
from bootstrap.schema import PROXY_CONFIG
from bootstrap.template.values import Struct, TextMap

#: Keys of the metadata whose fields in Go have names of their own.
GO_NAMES: Final = {"NAME": "instancename", "PILOT_SAN": "pilotsubjectaltname"}
MAP_KEYS: Final = ("LABELS", "STATIC_LABELS", "ANNOTATIONS", "PLATFORM_METADATA")
#: What a field holds that nothing sets.
ZEROS: Final[Mapping[str, object]] = {
    **dict.fromkeys(
        (
            *TEXT_KEYS,
            *("NAME", "NAMESPACE", "SERVICE_ACCOUNT", "POD_PORTS", "STS_PORT"),
            *("OUTLIER_LOG_PATH", "WORKLOAD_IDENTITY_SOCKET_FILE"),
        ),
        "",
    ),
    **dict.fromkeys(
        (
            "ENVOY_STATUS_PORT",
            "ENVOY_PROMETHEUS_PORT",
            "ENVOY_SECURE_METRICS_PORT",
            "ENVOY_SECURE_MERGED_METRICS_PORT",
        ),
        0,
    ),
}
#: Texts "true" and "false" that are booleans in Go.
BOOLEANS: Final = (
    *SWITCH_KEYS,
    "METADATA_DISCOVERY",
    "EXIT_ON_ZERO_ACTIVE_CONNECTIONS",
    "ENVOY_SKIP_DEPRECATED_LOGS",
)


def proxy_config_struct(document: Mapping[str, object]) -> Struct:
    """Return the proxy's configuration, of which templates read ports and paths.

    Args:
        document: canonical proto JSON; its durations are texts here.
    """
    fields = {name.lower(): field.zero for name, field in PROXY_CONFIG.items()}
    fields.update({name.lower(): _as_text_map(value) for name, value in document.items()})
    return Struct("ProxyConfig", fields, document)


def metadata_struct(metadata: Mapping[str, object], proxy_config: Struct) -> Struct:
    """Return the node's metadata; labels, annotations and the cloud's are maps.

    Args:
        metadata: of the node, what users added included.
        proxy_config: stands in it.
    """
    values = {**ZEROS, **{key: TextMap() for key in MAP_KEYS}, **metadata}
    values.update({key: _as_text_map(values[key]) for key in MAP_KEYS})
    values.update({key: values.get(key) == "true" for key in BOOLEANS})
    values["INSTANCE_IPS"] = str(metadata.get("INSTANCE_IPS", "")).split(",")
    values["PROXY_CONFIG"] = proxy_config
    fields = {GO_NAMES.get(key) or key.replace("_", "").lower(): values[key] for key in values}
    return Struct("the metadata", fields, metadata)


def _as_text_map(value: object) -> object:
    """Return a map of texts as what Go has for one; all else as it is."""
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return TextMap(value)
    return value
