import re
from pathlib import Path

import pytest

from agent.cgroup import Limits
from agent.errors import SettingsError
from agent.lifecycle.command_line import envoy_arguments
from agent.proxy_flags import PROXY_FLAGS
from agent.settings import Settings, World, parse_settings
from iptables.flags import parse_flags

POD = {"POD_NAME": "web-1", "POD_NAMESPACE": "shop", "INSTANCE_IP": "10.0.0.5"}
DUAL = World(
    mesh_config=None,
    labels=None,
    annotations=None,
    interface_addresses=(("eth0", "10.0.0.5"), ("eth0", "fd00::5")),
    cpus=8,
)


def parse(argv: str = "sidecar", world: World = DUAL, **environ: str) -> tuple[Settings, list[str]]:
    flags = parse_flags(PROXY_FLAGS, argv.split(), unknown_ok=True)
    return parse_settings(flags, {**POD, **environ}, world)


def problems(argv: str = "sidecar", world: World = DUAL, **environ: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        parse(argv, world, **environ)
    return caught.value.problems


def test_an_injected_pod_has_no_problems() -> None:
    settings, warnings = parse(
        "sidecar --proxyLogLevel=warning --proxyComponentLogLevel=misc:error",
        PROXY_CONFIG="{}\n",
        ISTIO_CPU_LIMIT="2",
        ISTIO_META_INTERCEPTION_MODE="REDIRECT",
    )

    assert warnings == []
    assert " ".join(envoy_arguments(settings.envoy)).endswith(
        "-l warning --component-log-level misc:error --skip-deprecated-logs --concurrency 2"
    )
    assert settings.node.addresses == ("10.0.0.5", "fd00::5")
    assert (settings.admin_host, settings.has_ipv6) == ("127.0.0.1", True)
    assert settings.drain_target == "/drain_listeners?inboundonly&graceful&skip_exit"
    assert set(settings.ports) == {15000, 15001, 15006, 15020, 15021, 15090}


def test_a_variable_of_our_own_that_is_set_to_nothing_is_the_default() -> None:
    table = Path(__file__).parents[2] / "docs" / "settings.md"
    names = set(re.findall(r"`(AGENT_[A-Z_]+)`", table.read_text()))
    flags = parse_flags(PROXY_FLAGS, ["sidecar"], unknown_ok=True)
    environ = {**POD, "ISTIO_META_DNS_CAPTURE": "true"}
    usual, _ = parse_settings(flags, environ, DUAL)

    assert names
    for name in names:
        found, warnings = parse_settings(flags, {**environ, name: ""}, DUAL)
        assert found._replace(log=usual.log, node=usual.node) == usual, name
        assert all(name in warning for warning in warnings)


@pytest.mark.parametrize(
    "name",
    [
        "ENVOY_PROMETHEUS_PORT",
        "ENVOY_SKIP_DEPRECATED_LOGS",
        "EXIT_ON_ZERO_ACTIVE_CONNECTIONS",
        "FILE_MOUNTED_CERTS",
    ],
)
def test_what_several_settings_come_from_is_warned_of_once(name: str) -> None:
    _, warnings = parse_settings(
        parse_flags(PROXY_FLAGS, ["sidecar"], unknown_ok=True), {**POD, name: "x"}, DUAL
    )

    assert len(warnings) == 1


def test_every_problem_is_reported_at_once() -> None:
    found = problems(
        "carriage --log_output_level=loud",
        POD_NAME="",
        PROXY_CONFIG='{"proxyAdminPort": 99999}',
        ISTIO_KUBE_APP_PROBERS="{",
        DISABLE_ENVOY="true",
    )

    text = "\n".join(found)
    assert "invalid proxy Type: carriage; expected one of sidecar, router" in text
    assert "POD_NAME is not set" in text
    assert "PROXY_CONFIG" in text
    assert "ISTIO_KUBE_APP_PROBERS" in text
    assert "'loud'" in text


@pytest.mark.parametrize("text", ["{", "concurrency: [", "drainDuration: 5", "- a\n- b"])
def test_a_malformed_proxy_config_is_named(text: str) -> None:
    assert all("PROXY_CONFIG" in problem for problem in problems(PROXY_CONFIG=text))


def test_without_envoy_only_the_status_port_is_needed() -> None:
    settings, _ = parse(DISABLE_ENVOY="true")

    assert not settings.envoy_enabled
    assert not settings.status.envoy_enabled
    assert set(settings.ports) == {15020}


@pytest.mark.parametrize(
    ("limits", "environ", "concurrency"),
    [
        (Limits(cpus=2.0), {}, 2),
        (Limits(cpus=0.1), {}, 1),
        (Limits(cpus=2.0), {"ISTIO_CPU_LIMIT": "4"}, 4),
        (Limits(cpus=2.0), {"ISTIO_CPU_LIMIT": "-4"}, 2),
        (Limits(cpus=2.0), {"PROXY_CONFIG": '{"concurrency": 1}'}, 1),
        (Limits(), {}, 0),
        (Limits(2.0, 0.5), {"AGENT_CONCURRENCY_FROM": "request"}, 1),
        (Limits(2.0, 0.5), {"AGENT_CONCURRENCY_FROM": "request", "ISTIO_CPU_LIMIT": "4"}, 1),
        (Limits(2.0), {"AGENT_CONCURRENCY_FROM": "request"}, 2),
        (Limits(2.0, 0.5), {"AGENT_CONCURRENCY_FROM": "weight"}, 2),
    ],
)
def test_workers_follow_the_environment_else_the_cgroup(
    limits: Limits, environ: dict[str, str], concurrency: int
) -> None:
    """Cases K2 to K4."""
    settings, _ = parse(world=DUAL._replace(limits=limits), **environ)

    assert settings.envoy.concurrency == concurrency


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, 1 << 30),
        ({"AGENT_ENVOY_MEMORY_LIMIT": "512Mi"}, 512 << 20),
        ({"AGENT_ENVOY_MEMORY_LIMIT": "off"}, 0),
        ({"AGENT_ENVOY_MEMORY_LIMIT": "much"}, 1 << 30),
    ],
)
def test_memory_follows_the_environment_else_the_cgroup(
    environ: dict[str, str], expected: int
) -> None:
    """Case K6."""
    settings, _ = parse(world=DUAL._replace(limits=Limits(memory_bytes=1 << 30)), **environ)

    assert settings.memory_limit_bytes == expected


@pytest.mark.parametrize(
    ("is_root", "address", "user"),
    [
        (True, "localhost:53", (1337, 1337)),
        (True, "localhost:15053", None),
        (False, "localhost:53", None),
    ],
)
def test_a_root_agent_that_serves_dns_runs_envoy_unprivileged(
    *, is_root: bool, address: str, user: tuple[int, int] | None
) -> None:
    settings, _ = parse(world=DUAL._replace(is_root=is_root), DNS_PROXY_ADDR=address)

    assert settings.envoy.user == user


@pytest.mark.parametrize(("text", "expected"), [("3", 3), ("-1", 0), ("many", 0)])
def test_restarts_are_a_whole_number(text: str, expected: int) -> None:
    settings, warnings = parse(AGENT_ENVOY_RESTARTS=text)

    assert settings.restarts == expected
    assert bool(warnings) == (text != "3")


@pytest.mark.parametrize(
    ("template", "suffix"), [("/etc/own.json", "json"), ("/etc/own.yaml.tmpl", "yaml")]
)
def test_a_template_of_the_users_own_says_what_it_yields(template: str, suffix: str) -> None:
    settings, _ = parse(f"sidecar --templateFile {template}")

    assert settings.template == template
    assert settings.envoy.config_file == f"etc/istio/proxy/envoy-rev.{suffix}"


def test_the_references_own_template_is_none_of_the_users() -> None:
    settings, _ = parse(ISTIO_BOOTSTRAP="var/lib/istio/envoy/envoy_bootstrap_tmpl.json")

    assert settings.template == ""


def test_a_missing_type_is_a_sidecar() -> None:
    settings, _ = parse("")

    assert settings.node.proxy_type == "sidecar"


def test_a_gateway_drains_everything_and_captures_nothing() -> None:
    settings, _ = parse("router")

    assert settings.drain_target == "/drain_listeners?graceful&skip_exit"
    assert 15006 not in settings.ports


def test_a_sidecar_without_interception_needs_no_capture_ports() -> None:
    settings, _ = parse(ISTIO_META_INTERCEPTION_MODE="NONE")

    assert 15001 not in settings.ports


def test_a_status_port_of_zero_is_no_port() -> None:
    world = DUAL._replace(annotations='status.sidecar.istio.io/port="0"\n')

    settings, _ = parse(world=world)

    assert settings.status.port == 0
    assert 0 not in settings.ports


def test_a_custom_configuration_is_used_as_it_is() -> None:
    own = '{"customConfigFile": "/etc/envoy.yaml"}'

    settings, _ = parse(PROXY_CONFIG=own, ISTIO_BOOTSTRAP="/etc/own.json")

    assert settings.custom_config
    assert settings.template == ""
    assert settings.envoy.config_file == "/etc/envoy.yaml"


def test_a_compliance_policy_limits_envoys_ciphers() -> None:
    settings, _ = parse(COMPLIANCE_POLICY="fips-140-2")

    assert dict(settings.envoy.environment)["GRPC_SSL_CIPHER_SUITES"].startswith("ECDHE-ECDSA")


def test_an_ipv6_pod_is_one_throughout() -> None:
    world = DUAL._replace(interface_addresses=(("eth0", "fd00::5"),))

    settings, _ = parse(world=world, INSTANCE_IP="fd00::5")

    assert settings.envoy.ipv6_only
    assert settings.admin_host == "::1"


def test_file_flushing_follows_the_proxy_config() -> None:
    settings, _ = parse(PROXY_CONFIG='{"fileFlushInterval": "10s", "fileFlushMinSizeKb": 128}')

    assert settings.envoy.file_flush_interval_ms == 10000
    assert settings.envoy.file_flush_min_size_kb == 128


def test_an_unusable_variable_is_a_warning() -> None:
    _, warnings = parse(MINIMUM_DRAIN_DURATION="5")

    assert any("MINIMUM_DRAIN_DURATION='5'" in warning for warning in warnings)


def test_google_cloud_may_be_known_from_the_environment() -> None:
    settings, _ = parse(GCP_METADATA="shop|17|blue|europe-west1-b", GCP_ZONE="europe-west1-c")

    assert settings.cloud.platforms == ()
    assert settings.node.platform["gcp_project"] == "shop"
    assert settings.node.platform_locality["zone"] == "europe-west1-c"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {"PROXY_CONFIG": '{"proxyAdminPort": 15001}'},
            "port 15001 is both Envoy's admin port and outbound capture",
        ),
        (
            {"ENVOY_PROMETHEUS_PORT": "15021"},
            "port 15021 is both Envoy's health listener and Envoy's metrics listener",
        ),
        (
            {"ENVOY_STATUS_PORT": "15020"},
            "port 15020 is both the agent's status port and Envoy's health listener",
        ),
    ],
)
def test_two_of_our_own_ports_must_not_be_one(environ: dict[str, str], expected: str) -> None:
    assert problems("sidecar", DUAL, **environ) == (f"{expected}: change one of them",)


def test_ports_that_are_off_may_be_the_same() -> None:
    settings, _ = parse(ENVOY_SECURE_METRICS_PORT="0", ENVOY_SECURE_MERGED_METRICS_PORT="0")

    assert 0 not in settings.ports


def test_who_the_workload_is_and_who_vouches_for_it() -> None:
    settings, warnings = parse(
        SERVICE_ACCOUNT="web",
        PROXY_CONFIG='{"discoveryAddress": "ca:1", "privateKeyProvider": {"qat": '
        '{"pollDelay": "0.02s"}}}',
        WORKLOAD_IDENTITY_SOCKET_FILE="spire.sock",
    )
    local, _ = parse(AGENT_LOCAL_XDS="builtin")

    assert warnings == []
    assert settings.identity.key.spiffe_id == "spiffe://cluster.local/ns/shop/sa/web"
    assert [each.target for each in settings.identity.authority.addresses] == ["ca:1"]
    assert settings.identity.key_provider
    assert settings.node.workload_socket_file == "spire.sock"
    assert (settings.identity.warm_up, local.identity.warm_up) == (True, False)


def test_googles_tokens_go_to_the_control_plane_and_the_ca_alike() -> None:
    settings, warnings = parse(
        CREDENTIAL_FETCHER_TYPE="GoogleComputeEngine", GCE_METADATA_HOST="127.0.0.1:8080"
    )

    token = settings.identity.authority.token
    assert (token.metadata_host, token.metadata_port) == ("127.0.0.1", 8080)
    assert token == settings.xds.upstream.token
    assert warnings == []
