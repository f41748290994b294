"""Where a response goes, by its type. Source: xds-identity-dns.md section 2.7."""

import pytest

from agent.xds.resources import (
    CLUSTER,
    EXTENSION,
    NAME_TABLE,
    SECRET,
    WORKLOAD,
    Destination,
    abbreviation,
    destination,
    short_name,
)


@pytest.mark.parametrize(
    ("type_url", "expected"),
    [
        (CLUSTER, Destination.ENVOY),
        (EXTENSION, Destination.ENVOY),
        (SECRET, Destination.ENVOY),
        ("type.googleapis.com/envoy.config.bootstrap.v3.Bootstrap", Destination.ENVOY),
        (WORKLOAD, Destination.ENVOY),
        (NAME_TABLE, Destination.NOBODY),
        ("type.googleapis.com/istio.workload.Address", Destination.NOBODY),
        ("istio.io/debug", Destination.NOBODY),
        ("", Destination.NOBODY),
    ],
)
def test_without_handlers_envoy_gets_its_own_types(type_url: str, expected: Destination) -> None:
    assert destination(type_url, ()) is expected


def test_a_type_with_a_handler_is_the_agents_even_if_it_is_envoys() -> None:
    assert destination(NAME_TABLE, {NAME_TABLE}) is Destination.AGENT
    assert destination(EXTENSION, {EXTENSION}) is Destination.AGENT


def test_people_read_the_last_part() -> None:
    assert short_name(CLUSTER) == "Cluster"


def test_known_types_are_abbreviated_as_by_istioctl() -> None:
    assert abbreviation(CLUSTER) == "cds"
    assert abbreviation(WORKLOAD) == "Workload"
