"""The injected pod that the demo runs."""

import json

from agent.demo.manifest import (
    DEFAULT_ENVOY,
    INIT_ARGS,
    PROXY_ARGS,
    annotations,
    downward,
    environment,
    expand,
)


def test_arguments_are_expanded_as_by_the_kubelet() -> None:
    environ = environment("10.0.0.2", "10.0.0.1")

    assert "default.svc.cluster.local" in expand(PROXY_ARGS, environ)
    assert expand(["$(NOT_SET)", "$HOME"], environ) == ["$(NOT_SET)", "$HOME"]


def test_the_init_container_captures_all_but_the_sidecars_own_ports() -> None:
    flags = dict(zip(INIT_ARGS[1:-1:2], INIT_ARGS[2:-1:2], strict=True))

    assert flags["-b"] == "*"
    assert flags["-d"] == "15090,15021,15020"


def test_field_references_are_filled_in() -> None:
    environ = environment("10.0.0.2", "10.0.0.1")

    assert (environ["INSTANCE_IP"], environ["HOST_IP"]) == ("10.0.0.2", "10.0.0.1")


def test_envoy_in_its_place_needs_no_annotation() -> None:
    config = json.loads(annotations(DEFAULT_ENVOY)["proxy.istio.io/config"])

    assert "binaryPath" not in config


def test_envoy_elsewhere_is_named_by_an_annotation() -> None:
    config = json.loads(annotations("/opt/envoy")["proxy.istio.io/config"])

    assert config["binaryPath"] == "/opt/envoy"


def test_a_downward_volume_is_sorted_and_quoted() -> None:
    assert downward({"b": 'say "x"', "a": "1"}) == 'a="1"\nb="say \\"x\\""'
