import json

import pytest

from bootstrap.config import (
    DEFAULTS,
    ProxyConfig,
    Sources,
    bootstrap_path,
    clean_path,
    from_document,
    resolve_proxy_config,
    template_path,
    with_statsd_address,
)
from bootstrap.errors import BootstrapError

ANNOTATION = "proxy.istio.io/config"
NOTHING = Sources(mesh_config=None, environment="", annotations={})


def resolve(sources: Sources) -> ProxyConfig:
    return resolve_proxy_config(sources)[0]


def environment(**fields: object) -> Sources:
    return NOTHING._replace(environment=json.dumps(fields))


def problems(sources: Sources) -> tuple[str, ...]:
    with pytest.raises(BootstrapError) as caught:
        resolve_proxy_config(sources)
    return caught.value.problems


def test_without_sources_the_built_in_values_stand() -> None:
    config = resolve(NOTHING)

    assert config.document == DEFAULTS
    assert config == ProxyConfig(
        config_path="./etc/istio/proxy",
        binary_path="/usr/local/bin/envoy",
        service_cluster="istio-proxy",
        tracing_service_name="",
        drain_duration_seconds=45.0,
        termination_drain_duration_seconds=5.0,
        discovery_address="istiod.istio-system.svc:15012",
        proxy_admin_port=15000,
        status_port=15020,
        control_plane_tls=True,
        concurrency=None,
        custom_config_file="",
        bootstrap_template_path="",
        statsd_udp_address="",
        file_flush_interval_seconds=None,
        file_flush_min_size_kb=0,
        proxy_metadata={},
        readiness_probe=None,
        document=config.document,
    )


@pytest.mark.parametrize("text", ["", " \n", "{}\n", "{ }", "# nothing", "null"])
def test_an_empty_document_changes_nothing(text: str) -> None:
    """Gotcha 21 of bootstrap.md section 8."""
    assert resolve(NOTHING._replace(environment=text)) == resolve(NOTHING)


def test_higher_sources_win() -> None:
    """The merge test of bootstrap.md section 9."""
    mesh = """
      defaultConfig:
        discoveryAddress: file:123
        proxyMetadata: {SOME: setting}
        drainDuration: 1s
        extraStatTags: [a]
        proxyStatsMatcher: {inclusionPrefixes: [a], inclusionSuffixes: [b], inclusionRegexps: [c]}
        controlPlaneAuthPolicy: NONE
    """
    annotation = """
      discoveryAddress: annotation:123
      proxyMetadata: {ANNOTATION: something}
      drainDuration: 5s
      extraStatTags: [b]
      proxyStatsMatcher: {inclusionPrefixes: [a], inclusionSuffixes: [e], inclusionRegexps: [f]}
    """
    unknown = '{"discoveryAddress": "environment:123", "proxyMetadata": {}, "unknown": 1}'

    config = resolve(Sources(mesh, unknown, {ANNOTATION: annotation}))

    assert config.discovery_address == "annotation:123"
    assert config.proxy_metadata == {"SOME": "setting", "ANNOTATION": "something"}
    assert config.drain_duration_seconds == 5
    assert not config.control_plane_tls
    assert config.document["extraStatTags"] == ["b"]
    assert config.document["proxyStatsMatcher"] == {
        "inclusionPrefixes": ["a"],
        "inclusionSuffixes": ["e"],
        "inclusionRegexps": ["f"],
    }
    assert "controlPlaneAuthPolicy" not in config.document
    assert "unknown" not in config.document


def test_a_message_is_replaced_as_a_whole() -> None:
    mesh = '{"defaultConfig": {"tracing": {"zipkin": {"address": "zipkin:9411"}}}}'

    config = resolve(Sources(mesh, '{"tracing": {"sampling": 5}}', {}))

    assert config.document["tracing"] == {"sampling": 5}


def test_an_empty_message_switches_tracing_off() -> None:
    """Gotcha 5 of bootstrap.md section 8."""
    mesh = '{"default_config": {"tracing": {"zipkin": {"address": "zipkin:9411"}}}}'

    config = resolve(Sources(mesh, '{"tracing": {}}', {}))

    assert config.document["tracing"] == {}


def test_null_leaves_what_was_there() -> None:
    mesh = "defaultConfig: {drainDuration: 7s}"

    assert resolve(Sources(mesh, '{"drainDuration": null}', {})).drain_duration_seconds == 7


def test_some_proxy_headers_are_inherited() -> None:
    mesh = """
      defaultConfig:
        proxyHeaders: {server: {disabled: true}, requestId: {}, preserveHttp1HeaderCase: true}
    """

    config = resolve(Sources(mesh, '{"proxyHeaders": {"server": {"value": "x"}}}', {}))

    assert config.document["proxyHeaders"] == {"server": {"value": "x"}, "requestId": {}}


def test_names_of_the_cluster_exclude_each_other() -> None:
    scheme = "tracingServiceName"

    first = resolve(environment(**{scheme: "CANONICAL_NAME_ONLY"}))
    second = resolve(Sources(f"defaultConfig: {{{scheme}: 1}}", '{"serviceCluster": "mine"}', {}))

    assert (first.service_cluster, first.tracing_service_name) == ("", "CANONICAL_NAME_ONLY")
    assert (second.service_cluster, second.tracing_service_name) == ("mine", "")
    assert problems(environment(serviceCluster="a", tracingServiceName=0)) == (
        "PROXY_CONFIG: expected one of serviceCluster, tracingServiceName, found 2",
    )


@pytest.mark.parametrize(("given", "flag", "cluster"), [("", "mine", "mine"), ("a", "mine", "a")])
def test_the_flag_names_only_a_cluster_without_name(given: str, flag: str, cluster: str) -> None:
    sources = environment(serviceCluster=given)._replace(service_cluster_flag=flag)

    assert resolve(sources).service_cluster == cluster


def test_a_cluster_without_any_name_is_an_error() -> None:
    sources = environment(serviceCluster="")._replace(service_cluster_flag="")

    assert problems(sources) == (
        "PROXY_CONFIG: serviceCluster='': expected a name, or tracingServiceName",
    )


def test_every_problem_is_reported_with_its_source() -> None:
    sources = Sources(
        "defaultConfig: {drainDuration: 5, binaryPath: ''}",
        '{"proxyAdminPort": 0, "configPath": ""}',
        {ANNOTATION: "statusPort: 99999\nproxyMetadata: {A: true}"},
        mesh_config_path="mesh.yaml",
    )

    assert problems(sources) == (
        "mesh.yaml: defaultConfig.drainDuration=5: expected a duration such as '5s' or '300ms'",
        "mesh.yaml: defaultConfig.binaryPath='': expected a path",
        f"annotation {ANNOTATION}: proxyMetadata.A=True: expected text; put it in quotes",
        "PROXY_CONFIG: configPath='': expected a path",
        "PROXY_CONFIG: proxyAdminPort=0: expected a port in 1..65535",
        f"annotation {ANNOTATION}: statusPort=99999: expected a port in 1..65535",
    )


def test_the_mesh_file_must_be_valid_by_itself() -> None:
    sources = Sources("defaultConfig: {statusPort: 0}", '{"statusPort": 15020}', {})

    assert problems(sources) == (
        "./etc/istio/config/mesh: defaultConfig.statusPort=0: expected a port in 1..65535",
    )


def test_trouble_elsewhere_in_the_mesh_file_is_ignored() -> None:
    mesh = "accessLogFile: 5\ndefaultConfig: {drainDuration: 6s}"

    assert resolve(Sources(mesh, "", {})).drain_duration_seconds == 6


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[1]", "PROXY_CONFIG: expected an object, found list"),
        ("text", "PROXY_CONFIG: expected an object, found str"),
        ("a: [", "PROXY_CONFIG: expected JSON or YAML: "),
    ],
)
def test_text_that_is_no_object_is_an_error(text: str, line: str) -> None:
    (found,) = problems(NOTHING._replace(environment=text))

    assert found.startswith(line)


def test_a_deprecated_setting_is_a_warning() -> None:
    sources = environment(proxyMetadata={"ISTIO_META_DNS_AUTO_ALLOCATE": "true"})

    _, warnings = resolve_proxy_config(sources)

    (warning,) = warnings
    assert warning.startswith("proxyMetadata.ISTIO_META_DNS_AUTO_ALLOCATE is deprecated")


@pytest.mark.parametrize(
    ("given", "flag", "limit", "concurrency"),
    [
        ({}, 0, 0, None),
        ({}, 0, 3, 3),
        ({"concurrency": 2}, 0, 3, 2),
        ({"concurrency": 0}, 0, 3, 0),
        ({"concurrency": 2}, 5, 3, 5),
    ],
)
def test_concurrency_follows_flag_then_setting_then_limit(
    given: dict[str, object], flag: int, limit: int, concurrency: int | None
) -> None:
    """Gotcha 7 of bootstrap.md section 8."""
    config = resolve(environment(**given)._replace(concurrency_flag=flag, cpu_limit=limit))

    assert config.concurrency == concurrency
    assert config.document.get("concurrency") == concurrency


def test_the_concurrency_flag_is_deprecated() -> None:
    _, warnings = resolve_proxy_config(NOTHING._replace(concurrency_flag=2))

    assert warnings == [
        "--concurrency=2: this flag is deprecated; set concurrency in the proxy configuration"
    ]


@pytest.mark.parametrize(("cpus", "count"), [(8, 1), (2, 0), (0, 0)])
def test_more_workers_than_cpus_are_worth_a_warning(cpus: int, count: int) -> None:
    sources = environment(concurrency=0)._replace(cpu_limit=2, machine_cpus=cpus)

    _, warnings = resolve_proxy_config(sources)

    assert len(warnings) == count


def test_the_template_flag_yields_to_a_whole_configuration() -> None:
    alone = resolve(NOTHING._replace(template_flag="t.json"))
    beside = resolve(environment(customConfigFile="c.json")._replace(template_flag="t.json"))

    assert alone.document["proxyBootstrapTemplatePath"] == alone.bootstrap_template_path == "t.json"
    assert (beside.bootstrap_template_path, beside.custom_config_file) == ("", "c.json")


@pytest.mark.parametrize(("text", "port"), [("15099", 15099), ("0", 0), ("65535", 65535)])
def test_an_annotation_sets_the_status_port(text: str, port: int) -> None:
    """Gotcha 28 of bootstrap.md section 8."""
    sources = NOTHING._replace(annotations={"status.sidecar.istio.io/port": text})

    config, warnings = resolve_proxy_config(sources)

    assert (config.status_port, config.document.get("statusPort", 0)) == (port, port)
    assert not warnings


@pytest.mark.parametrize("text", ["", "x", "65536", "-1", "1e3", "123456", "٣"])
def test_a_bad_status_port_switches_the_server_off(text: str) -> None:
    sources = NOTHING._replace(annotations={"status.sidecar.istio.io/port": text})

    config, warnings = resolve_proxy_config(sources)

    assert config.status_port == 0
    name = "annotation status.sidecar.istio.io/port"
    expected = "expected a port in 0..65535; the status server is off"
    assert warnings == [f"{name}={text!r}: {expected}"]


def test_an_annotation_sets_the_discovery_address() -> None:
    sources = NOTHING._replace(annotations={"sidecar.istio.io/discoveryAddress": "istiod:1"})

    assert resolve(sources).discovery_address == "istiod:1"


def test_a_bad_discovery_annotation_is_an_error() -> None:
    """Defect 37 of bootstrap.md section 8."""
    sources = NOTHING._replace(annotations={"sidecar.istio.io/discoveryAddress": "istiod"})

    assert problems(sources) == (
        "annotation sidecar.istio.io/discoveryAddress='istiod': expected host:port",
    )


def test_the_deprecated_metrics_address_does_nothing() -> None:
    """Defect 36 of bootstrap.md section 8."""
    config = resolve(environment(envoyMetricsServiceAddress="metrics:1"))

    assert config.document["envoyMetricsServiceAddress"] == "metrics:1"


def test_durations_are_kept_as_protobuf_prints_them() -> None:
    config = resolve(environment(drain_duration="1m30s", fileFlushInterval="500ms"))

    assert config.document["drainDuration"] == "90s"
    assert config.document["fileFlushInterval"] == "0.500s"
    assert config.file_flush_interval_seconds == 0.5


def test_the_statsd_address_can_be_replaced() -> None:
    config = from_document({"statsdUdpAddress": "statsd:8125"})

    found, gone = with_statsd_address(config, "10.0.0.1:8125"), with_statsd_address(config, "")

    assert found.statsd_udp_address == found.document["statsdUdpAddress"] == "10.0.0.1:8125"
    assert (gone.statsd_udp_address, gone.document) == ("", {})


@pytest.mark.parametrize(
    ("path", "cleaned"),
    [("./etc/istio/proxy", "etc/istio/proxy"), ("//a//b/../c/", "/a/c"), ("", "."), ("/", "/")],
)
def test_paths_are_cleaned_as_go_does(path: str, cleaned: str) -> None:
    assert clean_path(path) == cleaned


@pytest.mark.parametrize(
    ("document", "environ", "template"),
    [
        ({}, {}, ""),
        ({"proxyBootstrapTemplatePath": "t"}, {}, "t"),
        ({"proxyBootstrapTemplatePath": "t", "customConfigFile": "c"}, {}, "c"),
        ({"customConfigFile": "c"}, {"ISTIO_BOOTSTRAP": "i"}, "i"),
        ({}, {"ISTIO_BOOTSTRAP": "var/lib/istio/envoy/envoy_bootstrap_tmpl.json"}, ""),
    ],
)
def test_a_template_is_chosen(
    document: dict[str, object], environ: dict[str, str], template: str
) -> None:
    assert template_path(from_document(document), environ) == template


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("", "etc/istio/proxy/envoy-rev.json"),
        ("a.json", "etc/istio/proxy/envoy-rev.json"),
        ("a.yaml", "etc/istio/proxy/envoy-rev.yaml"),
        ("a.yaml.tmpl", "etc/istio/proxy/envoy-rev.yaml"),
    ],
)
def test_the_bootstrap_has_a_path(template: str, path: str) -> None:
    assert bootstrap_path(resolve(NOTHING), template) == path
