"""Source: status-lifecycle.md sections 4.1 and 11.11; decision D12."""

import json
from typing import Any

import pytest

from agent.inject.prometheus import (
    RESERVED_PORTS,
    clear,
    merge_metrics,
    parse_targets,
    secure_port,
)
from agent.status import scrape

MERGED = {
    "prometheus.io/port": "15020",
    "prometheus.io/path": "/stats/prometheus",
    "prometheus.io/scrape": "true",
}


def merge(
    annotations: dict[str, str], *, port: int = 15020, enabled: bool = True
) -> tuple[dict[str, str], Any, list[str]]:
    proxy: dict[str, Any] = {"name": "istio-proxy"}
    kept, warnings = merge_metrics(annotations, proxy, status_port=port, enabled=enabled)
    found = proxy.get("env", [])
    return kept, json.loads(found[0]["value"]) if found else None, warnings


def test_without_annotations_agent_and_envoy_are_scraped() -> None:
    assert merge({"other": "x"}) == ({"other": "x", **MERGED}, None, [])


def test_the_application_is_told_to_the_agent() -> None:
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"}

    kept, variable, _ = merge(annotations)

    assert kept == MERGED
    assert variable == {"scrape": "true", "path": "", "port": "8080"}


def test_any_spelling_of_a_name_is_understood_and_goes() -> None:
    kept, variable, _ = merge({"prometheus-io/port": "1", "prometheus.io.path": "/x<"})

    assert kept == MERGED
    assert variable == {"scrape": "", "path": "/x<", "port": "1"}


def test_the_variable_is_written_in_its_order_and_escaped() -> None:
    proxy: dict[str, Any] = {}

    merge_metrics(
        {"prometheus.istio.io/scrape-targets": "1:/a?b&c"}, proxy, status_port=15020, enabled=True
    )

    assert proxy["env"] == [
        {
            "name": "ISTIO_PROMETHEUS_ANNOTATIONS",
            "value": r'{"scrape":"","path":"/a?b\u0026c","port":"1",'
            r'"targets":[{"port":"1","path":"/a?b\u0026c"}]}',
        }
    ]


def test_targets_are_in_order_and_the_first_is_the_old_one() -> None:
    kept, variable, _ = merge(
        {"prometheus.istio.io/scrape-targets": "8080:/m?x=1:2, 9090 ,", "prometheus.io/port": "1"}
    )

    assert kept == MERGED
    assert variable == {
        "scrape": "",
        "path": "/m?x=1:2",
        "port": "8080",
        "targets": [{"port": "8080", "path": "/m?x=1:2"}, {"port": "9090", "path": "/metrics"}],
    }


def test_the_scheme_is_the_applications_not_the_agents() -> None:
    https = {"prometheus.io/scheme": "HTTPS"}

    kept, variable, _ = merge({**https, "prometheus.istio.io/scrape-targets": "8443"})

    assert kept == MERGED
    assert variable["scheme"] == "https"
    assert merge(https) == (MERGED, None, [])
    assert merge({"prometheus.io/scheme": "http"})[0] == {"prometheus.io/scheme": "http", **MERGED}


def test_a_list_with_an_empty_port_is_no_list() -> None:
    kept, variable, warnings = merge({"prometheus.istio.io/scrape-targets": "8080,:/metrics"})

    assert (kept, variable) == (MERGED, None)
    (warning,) = warnings
    assert warning.endswith("'8080,:/metrics': expected port[:path] items; it is ignored")
    assert parse_targets("") == ((), [])


@pytest.mark.parametrize(
    "annotations",
    [
        {"prometheus.io/scrape": "false", "prometheus.io/port": "1"},
        {"prometheus.istio.io/merge-metrics": "false"},
        {"prometheus.io/port": "15020"},
    ],
)
def test_nothing_is_merged_where_that_is_not_wanted_or_was_done(
    annotations: dict[str, str],
) -> None:
    assert merge(annotations) == (annotations, None, [])


def test_the_pod_wins_over_the_mesh() -> None:
    assert merge({}, enabled=False) == ({}, None, [])
    assert merge({"prometheus.istio.io/merge-metrics": "true"}, enabled=False)[0] == {
        "prometheus.istio.io/merge-metrics": "true",
        **MERGED,
    }


def test_the_page_is_where_the_agent_is() -> None:
    assert merge({}, port=15999)[0]["prometheus.io/port"] == "15999"
    assert merge({"prometheus.io/port": "15999"}, port=15999)[1] is None
    assert merge({"a": "b"}, port=0) == ({"a": "b"}, None, [])


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("prometheus.io/port", "http", "configuration: port 'http': expected a port in 1..65535"),
        ("prometheus.io/port", "0", "configuration: port '0': expected"),
        (
            "prometheus.io/port",
            "15090",
            "configuration: port '15090': it is reserved for Envoy Prom",
        ),
        (
            "prometheus.istio.io/scrape-targets",
            "80,015020",
            "targets: port '015020': it is the agent",
        ),
        ("prometheus.istio.io/scrape-targets", "70000", "targets: port '70000': expected a port"),
        ("prometheus.istio.io/scrape-targets", "15006", "targets: port '15006': it is reserved"),
    ],
)
def test_a_port_that_the_agent_would_refuse_is_refused_here(
    name: str, value: str, expected: str
) -> None:
    with pytest.raises(ValueError, match="invalid prometheus scrape") as caught:
        merge({name: value})

    assert str(caught.value).startswith(f"invalid prometheus scrape {expected}")


def test_without_a_proxy_nobody_is_told() -> None:
    kept, _ = merge_metrics({"prometheus.io/port": "1"}, None, status_port=15020, enabled=True)

    assert kept == MERGED


def test_an_earlier_injection_is_taken_back() -> None:
    assert clear({**MERGED, "a": "b"}, 15020) == {"a": "b"}
    assert clear({"prometheus.io/port": "1"}, 15020) == {"prometheus.io/port": "1"}


def test_the_port_with_mutual_tls_is_told_unless_it_was() -> None:
    def proxy(value: str) -> dict[str, Any]:
        return {"env": [{"name": "ENVOY_SECURE_MERGED_METRICS_PORT", "value": value}]}

    assert secure_port({}, proxy("15092")) == {"prometheus.istio.io/secure-port": "15092"}
    assert secure_port({"prometheus-istio.io/secure_port": "1"}, proxy("15092")) == {}
    assert secure_port({}, proxy("0")) == {}
    assert secure_port({}, proxy("")) == {}
    assert secure_port({}, {}) == {}


def test_the_ports_that_are_reserved_are_those_that_the_agent_does_not_scrape() -> None:
    assert RESERVED_PORTS == scrape.RESERVED_PORTS
