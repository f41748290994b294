"""ProxyConfig and metadata by their fields' names in Go."""

import pytest

from bootstrap.template.structs import metadata_struct, proxy_config_struct
from bootstrap.template.values import TextMap, field

CONFIG = proxy_config_struct({"proxyAdminPort": 15000, "proxyMetadata": {"A": "b"}})
METADATA = metadata_struct(
    {
        "NAME": "pod-1",
        "CLUSTER_ID": "c",
        "INSTANCE_IPS": "10.0.0.1,fd00::1",
        "LABELS": {"app": "web"},
        "METADATA_DISCOVERY": "true",
        "PILOT_SAN": ["istiod"],
        "ENVOY_STATUS_PORT": 15021,
        "OWN": {"any": 1},
    },
    CONFIG,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ProxyAdminPort", 15000),
        ("ProxyMetadata", TextMap({"A": "b"})),
        ("StatusPort", 0),
        ("ConfigPath", ""),
        ("Concurrency", None),
        ("Tracing", None),
    ],
)
def test_every_field_of_the_configuration_is_there(name: str, expected: object) -> None:
    assert field(CONFIG, name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("InstanceName", "pod-1"),
        ("ClusterID", "c"),
        ("InstanceIPs", ["10.0.0.1", "fd00::1"]),
        ("Labels", TextMap({"app": "web"})),
        ("Annotations", TextMap()),
        ("MetadataDiscovery", True),
        ("EnableHBONE", False),
        ("PilotSubjectAltName", ["istiod"]),
        ("EnvoyStatusPort", 15021),
        ("EnvoyPrometheusPort", 0),
        ("WorkloadName", ""),
        ("ProxyConfig", CONFIG),
        ("Own", {"any": 1}),
    ],
)
def test_fields_of_the_metadata_have_their_types(name: str, expected: object) -> None:
    found = field(METADATA, name)

    assert (found, type(found)) == (expected, type(expected))
