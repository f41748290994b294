import json

import pytest

from agent.status.probes import GrpcProbe, HttpProbe, Probe, TcpProbe, parse_probers

READYZ = "/app-health/hello/readyz"


def one(prober: object) -> Probe:
    table = parse_probers(json.dumps({READYZ: prober}))
    assert table.errors == ()
    return table.probes[READYZ]


def errors(text: str) -> str:
    table = parse_probers(text)
    assert table.probes == {}
    return "\n".join(table.errors)


def test_no_text_is_no_table() -> None:
    assert parse_probers("") == ({}, (), ())
    assert parse_probers("null") == ({}, (), ())


@pytest.mark.parametrize(
    ("prober", "probe"),
    [
        ({"httpGet": {"port": 80}}, HttpProbe("/", 80)),
        ({"httpGet": {"port": 80, "path": "hello/sunnyvale"}}, HttpProbe("/hello/sunnyvale", 80)),
        ({"httpGet": {"path": "/a?b=c"}}, HttpProbe("/a?b=c", 0)),
        ({"httpGet": {"port": 1, "scheme": "HTTPS"}}, HttpProbe("/", 1, is_tls=True)),
        ({"httpGet": {"port": 1, "scheme": "https"}}, HttpProbe("/", 1)),
        ({"HTTPGET": {"Port": 1}, "timeoutseconds": 3}, HttpProbe("/", 1, timeout_seconds=3.0)),
        ({"httpGet": {"port": 1}, "timeoutSeconds": -1}, HttpProbe("/", 1)),
        ({"httpGet": {"port": 1}, "tcpSocket": None}, HttpProbe("/", 1)),
        (
            {"httpGet": {"port": 1, "httpHeaders": [{"name": "A", "value": "b"}], "other": 1}},
            HttpProbe("/", 1),
        ),
        ({"tcpSocket": {"port": 8888}}, TcpProbe(8888)),
        ({"tcpSocket": {"port": 70000}, "timeoutSeconds": 2}, TcpProbe(70000, 2.0)),
        ({"gRPC": {"port": 90, "service": None}}, GrpcProbe(90)),
        ({"grpc": {"port": 90, "service": "foo"}}, GrpcProbe(90, "foo", 1.0)),
        ({"grpc": {"port": 90}, "timeoutSeconds": 10}, GrpcProbe(90, "", 10.0)),
    ],
)
def test_a_prober_is_read(prober: object, probe: Probe) -> None:
    assert one(prober) == probe


def test_several_probers_of_several_containers_are_read() -> None:
    text = """{"/app-health/hello/readyz": {"httpGet": {"path": "/hello", "port": 8080}},
               "/app-health/world/livez": {"httpGet": {"path": "/world", "port": 8080}},
               "/app-lifecycle/world/prestopz": {"tcpSocket": {"port": 91}}}"""

    table = parse_probers(text)

    assert table.errors == ()
    assert list(table.probes) == [
        "/app-health/hello/readyz",
        "/app-health/world/livez",
        "/app-lifecycle/world/prestopz",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "invalid-prober-json-encoding",
        "[]",
        f'{{"{READYZ}": 1}}',
        f'{{"{READYZ}": {{"httpGet": []}}}}',
        f'{{"{READYZ}": {{"httpGet": {{"path": 1}}}}}}',
        f'{{"{READYZ}": {{"httpGet": {{"port": 1.5}}}}}}',
        f'{{"{READYZ}": {{"httpGet": {{"port": true}}}}}}',
        f'{{"{READYZ}": {{"httpGet": {{"port": 2147483648}}}}}}',
        f'{{"{READYZ}": {{"gRPC": {{"port": "1"}}}}}}',
        f'{{"{READYZ}": {{"gRPC": {{"port": 1}}, "timeoutSeconds": "1"}}}}',
    ],
)
def test_what_cannot_be_decoded_is_named_with_the_text(text: str) -> None:
    found = errors(text)

    assert found.startswith("failed to decode app prober err = ")
    assert found.endswith(f", json string = {text}")


@pytest.mark.parametrize(
    "path",
    [
        "abc",
        "/app-health/readyz",
        "/app-health/a/b/readyz",
        "/app-health/a/other",
        "/app-health/a/readyz/",
        "/app-health/a/readyz\n",
        "/x/app-health/a/readyz",
    ],
)
def test_a_path_has_one_form(path: str) -> None:
    found = errors(json.dumps({path: {"path": "/app-foo/health"}}))

    assert found.startswith("invalid path, must be in form of regex pattern ^/(app-health|")
    assert found.endswith(f"got {path!r}")


@pytest.mark.parametrize(
    ("prober", "found"),
    [
        ('{"exec": {"command": ["true"]}}', "has none"),
        ("{}", "has none"),
        ("null", "has none"),
        (
            '{"tcpSocket": {"port": 1}, "httpGet": {"port": 1}}',
            "has httpGet and tcpSocket",
        ),
    ],
)
def test_a_prober_is_of_one_kind(prober: str, found: str) -> None:
    text = errors(f'{{"{READYZ}": {prober}}}')

    assert text == (
        f"invalid prober type, must be one of type httpGet, tcpSocket or gRPC: {READYZ} {found}"
    )


@pytest.mark.parametrize("kind", ["httpGet", "tcpSocket"])
@pytest.mark.parametrize("port", ["tcp", "8080"])
def test_a_port_is_a_number(kind: str, port: str) -> None:
    text = errors(json.dumps({READYZ: {kind: {"port": port}}}))

    assert text == f"invalid prober config for {READYZ}, the port must be int type"


def test_every_problem_is_listed_and_the_good_ones_are_read() -> None:
    text = f'{{"abc": {{}}, "{READYZ}": {{"tcpSocket": {{"port": "a"}}}},'
    table = parse_probers(text + '"/app-health/b/livez": {"tcpSocket": {"port": 1}}}')

    assert len(table.errors) == 2
    assert list(table.probes) == ["/app-health/b/livez"]


def test_a_host_is_ignored_with_a_warning() -> None:
    """cases.md P6."""
    table = parse_probers(f'{{"{READYZ}": {{"httpGet": {{"port": 80, "host": "example.com"}}}}}}')

    assert table.probes == {READYZ: HttpProbe("/", 80)}
    assert table.warnings == (
        f"host 'example.com' of {READYZ} is ignored: the pod itself is probed",
    )
