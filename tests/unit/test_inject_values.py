"""Source: status-lifecycle.md sections 11.3 and 11.8."""

import pytest

from agent.inject.values import overlay, parse_values, without_nulls


def test_without_a_document_they_are_the_charts() -> None:
    values, problems = parse_values({})

    assert problems == []
    assert values.istio_namespace == "istio-system"
    assert values.rewrite_probes
    assert values.proxy.status_port == 15020
    assert values.proxy.resources["limits"] == {"cpu": "2000m", "memory": "1024Mi"}
    assert values.proxy.readiness_period_seconds == 15
    assert values.proxy.startup_probe
    assert not values.cni_enabled


def test_a_document_is_laid_over_them() -> None:
    values, problems = parse_values(
        {
            "revision": "canary",
            "global": {
                "tag": 1,
                "imagePullSecrets": ["a", "b"],
                "proxy": {"privileged": "true", "readinessFailureThreshold": "7"},
                "sts": {"servicePort": 463},
            },
            "pilot": {"cni": {"enabled": True}},
        }
    )

    assert problems == []
    assert (values.revision, values.tag, values.sts_port) == ("canary", "1", 463)
    assert values.image_pull_secrets == ("a", "b")
    assert values.proxy.privileged
    assert values.proxy.readiness_failure_threshold == 7
    assert (values.cni_enabled, values.cni_provider) == (True, "default")


def test_null_takes_a_default_away() -> None:
    values, _ = parse_values(
        {
            "sidecarInjectorWebhook": {"rewriteAppHTTPProbe": None},
            "global": {"proxy": {"resources": None}},
        }
    )

    assert not values.rewrite_probes
    assert values.proxy.resources == {}


def test_null_members_of_resources_go_and_zeros_stay() -> None:
    limits = {"cpu": None, "memory": 0}

    values, _ = parse_values({"global": {"proxy": {"resources": {"limits": limits}}}})

    assert values.proxy.resources == {
        "limits": {"memory": 0},
        "requests": {"cpu": "100m", "memory": "128Mi"},
    }
    assert without_nulls({"limits": {"cpu": None}, "requests": {}, "a": {"b": {"c": None}}}) == {
        "requests": {}
    }


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"global": {"tag": 1.1}}, "global.tag=1.1: expected text"),
        ({"global": {"logAsJson": "x"}}, "global.logAsJson='x': expected true or false"),
        (
            {"global": {"proxy": {"statusPort": "http"}}},
            "global.proxy.statusPort='http': expected a whole number that is not negative",
        ),
        (
            {"global": {"proxy": {"lifecycle": []}}},
            "global.proxy.lifecycle=<list>: expected an object",
        ),
        ({"global": {"proxy": 5}}, "global.proxy=5: expected an object"),
        (
            {"global": None},
            "global.istioNamespace='': expected the namespace of the control plane",
        ),
        (
            {"global": {"proxy": {"includeIPRanges": "10.0.0.0/8, 1.1 -j ACCEPT"}}},
            (
                "global.proxy.includeIPRanges='10.0.0.0/8, 1.1 -j ACCEPT': item '1.1-jACCEPT': "
                "expected a list of CIDRs such as '10.0.0.0/8'"
            ),
        ),
        (
            {"global": {"proxy": {"excludeInboundPorts": "http"}}},
            (
                "global.proxy.excludeInboundPorts='http': item 'http': "
                "expected a list of ports such as '80,8080'"
            ),
        ),
        (
            {"global": {"proxy": {"statusPort": 70000}}},
            "global.proxy.statusPort=70000: expected a port in 0..65535",
        ),
        (
            {"global": {"imagePullSecrets": "x"}},
            "global.imagePullSecrets='x': expected a list of names",
        ),
    ],
)
def test_what_cannot_be_used_is_named(document: dict[str, object], problem: str) -> None:
    assert parse_values(document)[1] == [problem]


def test_an_object_in_the_place_of_a_value_replaces_it() -> None:
    assert overlay({"a": 1, "b": {"c": 1}}, {"a": {"x": 1}, "b": 2}) == {"a": {"x": 1}, "b": 2}
