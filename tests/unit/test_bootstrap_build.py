import json
from collections.abc import Mapping
from typing import Any

import pytest

from bootstrap.build import BootstrapInputs, build_bootstrap, companion_files, localhost
from bootstrap.config import DEFAULTS, from_document
from bootstrap.node import NodeInputs, build_node
from bootstrap.options import read_options

POD = {"POD_NAME": "v0", "POD_NAMESPACE": "default"}
LIMIT = "ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS"
RUNTIME_LIMIT = "overload.global_downstream_max_connections"


def inputs(
    document: Mapping[str, object] | None = None,
    environ: Mapping[str, str] = POD,
    **node: Any,  # noqa: ANN401 - members of NodeInputs
) -> BootstrapInputs:
    config = from_document({**DEFAULTS, **(document or {})})
    base = NodeInputs("sidecar", "", environ, ["10.0.0.1"], config)
    built, _ = build_node(base._replace(**node))
    return BootstrapInputs(config, built, read_options(environ)[0])


def build(given: BootstrapInputs) -> dict[str, Any]:
    text, warnings = build_bootstrap(given)
    assert not warnings
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def cluster_names(bootstrap: dict[str, Any]) -> list[str]:
    return [cluster["name"] for cluster in bootstrap["static_resources"]["clusters"]]


def runtime(bootstrap: dict[str, Any]) -> dict[str, object]:
    found: dict[str, object] = bootstrap["layered_runtime"]["layers"][0]["static_layer"]
    return found


def test_a_plain_sidecar_gets_the_minimal_bootstrap() -> None:
    """Section 5.9 of bootstrap.md, and gotcha 47 of its section 8."""
    bootstrap = build(inputs())

    assert sorted(bootstrap) == [
        "admin",
        "application_log_config",
        "bootstrap_extensions",
        "deferred_stat_options",
        "dynamic_resources",
        "layered_runtime",
        "node",
        "overload_manager",
        "static_resources",
        "stats_config",
    ]
    assert cluster_names(bootstrap) == ["prometheus_stats", "agent", "sds-grpc", "xds-grpc"]


def test_the_text_is_canonical() -> None:
    text, _ = build_bootstrap(inputs())

    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


def test_text_of_users_is_escaped() -> None:
    """Defect 33 of bootstrap.md section 8."""
    nasty = 'it\'s "quoted" \\ \n'
    document: dict[str, object] = {
        "serviceCluster": nasty,
        "proxyStatsMatcher": {"inclusionPrefixes": [nasty], "inclusionRegexps": [nasty]},
    }

    bootstrap = build(inputs(document, {**POD, "POD_NAME": nasty}))

    patterns = bootstrap["stats_config"]["stats_matcher"]["inclusion_list"]["patterns"]
    assert bootstrap["node"]["cluster"] == nasty
    assert f"~{nasty}.default~" in bootstrap["node"]["id"]
    assert {"prefix": nasty} in patterns
    assert {"safe_regex": {"regex": nasty}} in patterns


def test_logs_can_be_json() -> None:
    bootstrap = build(inputs()._replace(log_as_json=True))

    assert bootstrap["application_log_config"] == {
        "log_format": {
            "json_format": {
                "time": "%Y-%m-%dT%T.%fZ",
                "level": "%l",
                "scope": "envoy %n",
                "msg": "%j",
                "caller": "%g:%#",
                "thread": "%t",
            }
        }
    }


@pytest.mark.parametrize(
    ("addresses", "dual_stack", "host"),
    [
        (["10.0.0.1"], "true", "127.0.0.1"),
        (["fd00::1"], "false", "::1"),
        (["fd00::1", "10.0.0.1"], "true", "::1"),
        (["fd00::1", "10.0.0.1"], "false", "127.0.0.1"),
    ],
)
def test_the_admin_port_is_where_everybody_looks_for_it(
    addresses: list[str], dual_stack: str, host: str
) -> None:
    """Gotcha 24 and defect 40 of bootstrap.md section 8."""
    bootstrap = build(inputs(environ={"ISTIO_DUAL_STACK": dual_stack}, addresses=addresses))

    assert bootstrap["admin"]["address"]["socket_address"]["address"] == host
    assert localhost(addresses, dual_stack=dual_stack == "true") == host


@pytest.mark.parametrize(
    ("kind", "delta", "api_type"),
    [
        ("sidecar", "true", "DELTA_GRPC"),
        ("sidecar", "false", "GRPC"),
        ("waypoint", "false", "DELTA_GRPC"),
    ],
)
def test_ads_is_incremental_unless_switched_off(kind: str, delta: str, api_type: str) -> None:
    bootstrap = build(inputs(environ={"ISTIO_DELTA_XDS": delta}, proxy_type=kind))

    assert bootstrap["dynamic_resources"]["ads_config"]["api_type"] == api_type


def test_a_waypoint_always_discovers_metadata() -> None:
    bootstrap = build(inputs(proxy_type="waypoint"))

    assert bootstrap["bootstrap_extensions"][0]["name"] == "metadata_discovery"
    assert bootstrap["node"]["metadata"]["METADATA_DISCOVERY"] == "false"


def test_metadata_discovery_needs_incremental_ads() -> None:
    given = inputs(environ={"ISTIO_DELTA_XDS": "false", "PEER_METADATA_DISCOVERY": "true"})

    text, warnings = build_bootstrap(given)

    assert [each["name"] for each in json.loads(text)["bootstrap_extensions"]] == [
        "envoy.bootstrap.internal_listener"
    ]
    assert warnings == ["metadata discovery is off because it needs ISTIO_DELTA_XDS=true"]


@pytest.mark.parametrize(
    ("policy", "is_limited"),
    [("fips-140-2", True), ("fips-140-3", False), ("pqc", False), ("", False)],
)
def test_one_compliance_policy_limits_tls(policy: str, *, is_limited: bool) -> None:
    """Gotcha 25 of bootstrap.md section 8."""
    found = runtime(build(inputs(environ={"COMPLIANCE_POLICY": policy})))

    assert ("envoy.reloadable_features.google_grpc_disable_tls_13" in found) == is_limited


def test_runtime_switches_are_json_booleans() -> None:
    """Gotcha 20 of bootstrap.md section 8."""
    fragment = "HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED"
    document = {
        "runtimeValues": {
            "on": "true",
            "off": "false",
            "text": "True",
            "number": "5",
            "re2.max_program_size.error_level": "",
            "unknown": "",
        }
    }

    found = runtime(build(inputs(document, {fragment: "false"})))

    key = "envoy.reloadable_features.http_strip_fragment_from_path_unsafe_if_disabled"
    assert (found["on"], found["off"], found[key]) == (True, False, False)
    assert (found["text"], found["number"]) == ("True", "5")
    assert not {"re2.max_program_size.error_level", "unknown"} & found.keys()


@pytest.mark.parametrize(
    ("setting", "metadata", "flag", "limit"),
    [
        (25000, "10000", "5000", 25000),
        (None, "10000", "5000", 10000),
        (None, "", "5000", 5000),
        (None, "x", "5000", 5000),
        (None, "0", "5000", 5000),
        (None, "-5", "5000", 5000),
        (None, "9" * 19, "x", 2147483647),
        (None, "", "", 2147483647),
    ],
)
def test_connections_are_limited_by_the_first_that_says_so(
    setting: int | None, metadata: str, flag: str, limit: int
) -> None:
    """Gotcha 19 of bootstrap.md section 8."""
    document = {
        "connectionSettings": {"globalDownstreamConnectionLimit": setting} if setting else {},
        "proxyMetadata": {LIMIT: metadata},
        "runtimeValues": {RUNTIME_LIMIT: flag},
    }

    bootstrap = build(inputs(document))

    (monitor,) = bootstrap["overload_manager"]["resource_monitors"]
    assert monitor["typed_config"]["max_active_downstream_connections"] == limit
    assert runtime(bootstrap).get(RUNTIME_LIMIT, "") == flag


def test_the_environment_alone_does_not_limit_connections() -> None:
    """Gotcha 26 of bootstrap.md section 8."""
    bootstrap = build(inputs(environ={LIMIT: "5"}))

    (monitor,) = bootstrap["overload_manager"]["resource_monitors"]
    assert monitor["typed_config"]["max_active_downstream_connections"] == 2147483647
    assert bootstrap["node"]["metadata"]["GLOBAL_DOWNSTREAM_MAX_CONNECTIONS"] == "5"


def test_envoy_sheds_load_before_its_memory_ends() -> None:
    """Case K6."""
    bootstrap = build(inputs()._replace(memory_limit_bytes=1000))

    _, heap = bootstrap["overload_manager"]["resource_monitors"]
    assert heap["typed_config"]["max_heap_size_bytes"] == 950
    assert [action["name"] for action in bootstrap["overload_manager"]["actions"]] == [
        "envoy.overload_actions.shrink_heap",
        "envoy.overload_actions.stop_accepting_requests",
    ]


def test_metrics_can_stay_inside_the_pod_without_compression() -> None:
    document = {
        "proxyMetadata": {"METRICS_LOCALHOST_ACCESS_ONLY": "true"},
        "statsCompression": False,
    }

    metrics = build(inputs(document))["static_resources"]["listeners"][0]

    assert metrics["name"] == "127.0.0.1_15090"
    assert "compressor" not in str(metrics)


def test_an_external_identity_leaves_files_to_the_agent() -> None:
    bootstrap = build(inputs(files_only_sds=True))

    assert cluster_names(bootstrap)[2:4] == ["sds-grpc", "sds-files-grpc"]


def test_self_discovery_adds_the_local_cluster() -> None:
    bootstrap = build(inputs(environ={"ISTIO_META_ENABLE_SELF_DISCOVERY": "true"}))

    assert cluster_names(bootstrap)[-1] == "local_cluster"
    assert bootstrap["cluster_manager"] == {
        "local_cluster_name": "local_cluster",
        "enable_deferred_cluster_creation": True,
    }
    assert "lb_policy" not in bootstrap["static_resources"]["clusters"][-1]


def test_bad_load_statistics_are_left_out() -> None:
    text, warnings = build_bootstrap(inputs(environ={"ISTIO_META_LOAD_STATS_CONFIG_JSON": "[]"}))

    assert "cluster_manager" not in json.loads(text)
    assert warnings == ["metadata LOAD_STATS_CONFIG_JSON: expected a JSON object; it is ignored"]


def test_load_statistics_that_are_no_text_do_not_count() -> None:
    bootstrap = build(inputs(environ={"ISTIO_METAJSON_X": '{"LOAD_STATS_CONFIG_JSON": {}}'}))

    assert "cluster_manager" not in bootstrap


def test_annotations_that_are_no_pairs_do_not_count() -> None:
    bootstrap = build(inputs(environ={"ISTIO_METAJSON_X": '{"ANNOTATIONS": 5}'}))

    assert bootstrap["node"]["metadata"]["ANNOTATIONS"] == 5


def test_annotations_set_intervals() -> None:
    text = 'sidecar.istio.io/statsFlushInterval="1m"\n'

    assert build(inputs(annotations_text=text))["stats_flush_interval"] == "60s"


def test_the_lightstep_token_goes_to_its_own_file() -> None:
    """Gotcha 48 of bootstrap.md section 8."""
    given = inputs({"tracing": {"lightstep": {"address": "l:1", "accessToken": "secret"}}})

    bootstrap = build(given)

    path = "etc/istio/proxy/lightstep_access_token.txt"
    assert companion_files(given.config) == {path: "secret"}
    assert f"'access_token_file': '{path}'" in str(bootstrap["tracing"])


def test_other_pods_need_no_other_files() -> None:
    assert companion_files(inputs({"tracing": {"zipkin": {"address": "z:1"}}}).config) == {}


def test_a_status_server_that_is_off_has_port_zero() -> None:
    """Gotcha 28 of bootstrap.md section 8."""
    agent = build(inputs({"statusPort": 0}))["static_resources"]["clusters"][1]

    address = agent["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]
    assert (agent["name"], address["socket_address"]["port_value"]) == ("agent", 0)
