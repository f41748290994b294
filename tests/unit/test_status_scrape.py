import json

import pytest

from agent.status.scrape import RESERVED_PORTS, ScrapePlan, Target, parse_annotations


def plan(**values: object) -> ScrapePlan:
    return parse_annotations(json.dumps(values), 15020)


@pytest.mark.parametrize(
    ("values", "targets"),
    [
        ({}, [Target(80, "/metrics")]),
        ({"scrape": "true"}, [Target(80, "/metrics")]),
        ({"scrape": "False"}, [Target(80, "/metrics")]),
        ({"port": "8080", "path": "/x"}, [Target(8080, "/x")]),
        ({"PORT": "08080", "Path": "x"}, [Target(8080, "x")]),
        ({"port": None, "path": None, "targets": None}, [Target(80, "/metrics")]),
        ({"unknown": 1}, [Target(80, "/metrics")]),
        ({"scrape": "false"}, []),
        ({"scrape": "false", "port": "15020"}, []),
        ({"targets": [{"port": "1", "path": "/a"}]}, [Target(1, "/a")]),
        ({"targets": [{"port": "1"}]}, [Target(1, "/metrics")]),
        ({"port": "2", "path": "/b", "targets": [{"port": "1", "path": "/a"}]}, [Target(2, "/b")]),
        (
            {"port": "2", "targets": [{"port": "1"}, {"port": "3", "path": "/c"}]},
            [Target(1, "/metrics"), Target(3, "/c")],
        ),
    ],
)
def test_targets_are_read_in_order(values: dict[str, object], targets: list[Target]) -> None:
    assert plan(**values) == ScrapePlan(tuple(targets))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"port": 80}', '{"targets": {}}', '{"targets": [1]}']
)
def test_what_is_no_such_json_is_an_error(text: str) -> None:
    error = parse_annotations(text, 15020).error

    assert error is not None
    assert error.startswith("failed to unmarshal ISTIO_PROMETHEUS_ANNOTATIONS: ")


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "", "8 0", "99999999999"])
def test_a_target_needs_a_port(port: str) -> None:
    assert plan(targets=[{"port": port}, {"port": "1"}]).error == (
        f'invalid prometheus scrape configuration: invalid target port "{port}"'
    )


@pytest.mark.parametrize("values", [{"port": "9000"}, {"targets": [{"port": "09000"}]}])
def test_the_agents_own_port_is_not_scraped(values: dict[str, object]) -> None:
    assert parse_annotations(json.dumps(values), 9000).error == (
        "invalid prometheus scrape configuration: "
        "application port 9000 equals the agent's own port, scraping it may recurse"
    )


def test_reserved_ports_are_refused_with_their_use() -> None:
    assert len(RESERVED_PORTS) == 9
    for port, use in RESERVED_PORTS.items():
        error = parse_annotations(json.dumps({"targets": [{"port": str(port)}]}), 1).error
        assert error == (f"invalid prometheus scrape configuration: port {port} is reserved: {use}")


@pytest.mark.parametrize(
    ("values", "https_ports", "expected"),
    [
        ({"scheme": "https", "port": "1"}, (), [True]),
        ({"Scheme": "HTTPS", "targets": [{"port": "1"}, {"port": "2"}]}, (), [True, True]),
        ({"targets": [{"port": "1", "scheme": "https"}, {"port": "2"}]}, (), [True, False]),
        ({"scheme": "http", "port": "1"}, (), [False]),
        ({"scheme": 5, "targets": [{"port": "1", "scheme": None}]}, (), [False]),
        ({"targets": [{"port": "1"}, {"port": "2"}]}, (2, 3), [False, True]),
        ({"port": "2", "targets": [{"port": "1"}]}, (2,), [True]),
    ],
)
def test_a_target_may_be_over_https(
    values: dict[str, object], https_ports: tuple[int, ...], expected: list[bool]
) -> None:
    found = parse_annotations(json.dumps(values), 15020, https_ports)

    assert [target.is_tls for target in found.targets] == expected
    assert found.error is None
