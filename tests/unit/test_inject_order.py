"""Source: status-lifecycle.md section 11.12."""

import pytest

from agent.inject.order import order_containers


def order(group: str, names: str, *, native: bool = False, holds: bool = False) -> str:
    spec = {group: [{"name": name} for name in names.split()]}
    order_containers(spec, native=native, holds_application=holds)
    return " ".join(item["name"] for item in spec[group])


def test_the_proxy_is_last_unless_the_application_waits_for_it() -> None:
    assert order("containers", "istio-proxy b a") == "b a istio-proxy"
    assert order("containers", "b istio-proxy a", holds=True) == "istio-proxy b a"


@pytest.mark.parametrize(
    ("names", "native", "ordered"),
    [
        (
            "a enable-core-dump istio-proxy istio-init b",
            True,
            "istio-init istio-proxy enable-core-dump a b",
        ),
        ("a istio-proxy istio-validation", True, "istio-validation istio-proxy a"),
        ("enable-core-dump istio-init a b", False, "a b istio-init enable-core-dump"),
        ("a istio-validation", False, "istio-validation a"),
    ],
)
def test_init_containers_start_when_their_network_is_there(
    names: str, ordered: str, *, native: bool
) -> None:
    assert order("initContainers", names, native=native) == ordered


def test_lists_that_are_not_there_are_not_made() -> None:
    spec: dict[str, object] = {}

    order_containers(spec, native=True, holds_application=True)

    assert spec == {}
