import pytest

from agent.lifecycle.command_line import EnvoySettings, envoy_arguments, split_log_level


def test_the_arguments_of_a_standard_pod() -> None:
    settings = EnvoySettings(component_log_level="misc:error", concurrency=2)

    assert " ".join(envoy_arguments(settings)) == (
        "-c etc/istio/proxy/envoy-rev.json --drain-time-s 45 --drain-strategy immediate "
        "--local-address-ip-version v4 --file-flush-interval-msec 1000 --disable-hot-restart "
        "--allow-unknown-static-fields -l warning --component-log-level misc:error "
        "--skip-deprecated-logs --concurrency 2"
    )


def test_every_optional_argument_has_its_place() -> None:
    settings = EnvoySettings(
        config_file="test.json",
        ipv6_only=True,
        file_flush_interval_ms=10000,
        file_flush_min_size_kb=128,
        log_level="trace",
        component_log_level="misc:error",
        core_dump=True,
        config_yaml='{"key":"value"}',
        concurrency=8,
    )

    assert " ".join(envoy_arguments(settings)) == (
        "-c test.json --drain-time-s 45 --drain-strategy immediate "
        "--local-address-ip-version v6 --file-flush-interval-msec 10000 --disable-hot-restart "
        "--allow-unknown-static-fields --file-flush-min-size-kb 128 -l trace "
        "--component-log-level misc:error --skip-deprecated-logs --enable-core-dump "
        '--config-yaml {"key":"value"} --concurrency 8'
    )


def test_nothing_optional_is_passed_when_unset() -> None:
    settings = EnvoySettings(log_level="", skip_deprecated_logs=False)

    assert envoy_arguments(settings)[-1] == "--allow-unknown-static-fields"


@pytest.mark.parametrize(
    ("proxy_level", "components", "expected"),
    [
        ("warning", "misc:error", ("warning", "misc:error")),
        ("info,warn", "", ("warn", "")),
        (
            "misc:warn,info,upstream:debug",
            "misc:error",
            ("info", "misc:warn,upstream:debug"),
        ),
        ("", "misc:error", ("", "misc:error")),
    ],
)
def test_the_level_is_told_from_component_levels(
    proxy_level: str, components: str, expected: tuple[str, str]
) -> None:
    assert split_log_level(proxy_level, components) == (*expected, [])


def test_an_item_with_two_colons_is_dropped_with_a_warning() -> None:
    level, components, warnings = split_log_level("a:b:c,info", "")

    assert (level, components) == ("info", "")
    assert "'a:b:c'" in warnings[0]
