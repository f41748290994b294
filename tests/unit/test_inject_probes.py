"""Source: status-lifecycle.md section 10; decisions D10 and D11."""

import json
from typing import Any

import pytest

from agent.inject.probes import rewrite_probes

Object = dict[str, Any]


def rewrite(
    *containers: Object,
    before: tuple[Object, ...] = (),
    env: list[Object] | None = None,
    port: int = 15020,
    again: bool = False,
) -> tuple[list[Object], Object | None, list[str]]:
    proxy: Object = {"name": "istio-proxy", "env": env or [], "readinessProbe": {"httpGet": {}}}
    spec = {"initContainers": [*before, proxy], "containers": list(containers)}
    warnings = rewrite_probes(spec, proxy, status_port=port, mesh_status_port=15020, again=again)
    found = [item for item in proxy["env"] if item["name"] == "ISTIO_KUBE_APP_PROBERS"]
    assert proxy["readinessProbe"] == {"httpGet": {}}
    return spec["containers"], json.loads(found[-1]["value"]) if found else None, warnings


def app(**probes: Object) -> Object:
    return {"name": "app", "ports": [{"name": "web", "containerPort": 80}], **probes}


def test_each_kind_of_probe_asks_the_agent() -> None:
    (container,), table, warnings = rewrite(
        app(
            readinessProbe={"httpGet": {"path": "/r", "port": "web"}, "periodSeconds": 5},
            livenessProbe={"tcpSocket": {"port": 90}, "timeoutSeconds": 3},
            startupProbe={"grpc": {"port": 1234}, "timeoutSeconds": 10},
        )
    )

    assert warnings == []
    assert container["readinessProbe"] == {
        "httpGet": {"path": "/app-health/app/readyz", "port": 15020},
        "periodSeconds": 5,
    }
    assert container["livenessProbe"] == {
        "httpGet": {"path": "/app-health/app/livez", "port": 15020},
        "timeoutSeconds": 3,
    }
    assert container["startupProbe"]["httpGet"]["path"] == "/app-health/app/startupz"
    assert table == {
        "/app-health/app/livez": {"tcpSocket": {"port": 90}, "timeoutSeconds": 3},
        "/app-health/app/readyz": {"httpGet": {"path": "/r", "port": 80}},
        "/app-health/app/startupz": {
            "grpc": {"port": 1234, "service": None},
            "timeoutSeconds": 10,
        },
    }


def test_the_table_is_compact_sorted_and_escaped() -> None:
    proxy: Object = {"name": "istio-proxy"}
    probe = {"httpGet": {"scheme": "HTTPS", "path": "/a?b=1&c=<2>", "port": 1, "host": "h"}}
    spec = {"containers": [app(readinessProbe=probe, livenessProbe={"grpc": {"port": 2}})]}

    rewrite_probes(spec, proxy, status_port=15020, mesh_status_port=15020, again=False)

    assert proxy["env"][0]["value"] == (
        '{"/app-health/app/livez":{"grpc":{"port":2,"service":null}},'
        r'"/app-health/app/readyz":{"httpGet":{"path":"/a?b=1\u0026c=\u003c2\u003e","port":1,'
        '"host":"h","scheme":"HTTPS"}}}'
    )


def test_headers_stay_https_becomes_http_and_a_host_goes() -> None:
    headers = [{"name": "H", "value": "v"}]
    (container,), table, _ = rewrite(
        app(
            readinessProbe={
                "httpGet": {"port": 80, "host": "h", "scheme": "HTTPS", "httpHeaders": headers}
            }
        )
    )

    assert container["readinessProbe"]["httpGet"] == {
        "path": "/app-health/app/readyz",
        "port": 15020,
        "scheme": "HTTP",
        "httpHeaders": headers,
    }
    assert table == {
        "/app-health/app/readyz": {
            "httpGet": {"port": 80, "host": "h", "scheme": "HTTPS", "httpHeaders": headers}
        }
    }


def test_hooks_ask_the_agent_too_but_have_no_timeout() -> None:
    (container,), table, _ = rewrite(
        app(
            lifecycle={
                "preStop": {"httpGet": {"port": 91}},
                "postStart": {"tcpSocket": {"port": "web"}},
            }
        )
    )

    assert container["lifecycle"] == {
        "preStop": {"httpGet": {"path": "/app-lifecycle/app/prestopz", "port": 15020}},
        "postStart": {"httpGet": {"path": "/app-lifecycle/app/poststartz", "port": 15020}},
    }
    assert table == {
        "/app-lifecycle/app/poststartz": {"tcpSocket": {"port": 80}},
        "/app-lifecycle/app/prestopz": {"httpGet": {"port": 91}},
    }


def test_commands_and_sleeps_are_left_alone() -> None:
    probes: Object = {
        "readinessProbe": {"exec": {"command": ["true"]}},
        "lifecycle": {"preStop": {"sleep": {"seconds": 3}}, "postStart": {"exec": {}}},
    }

    (container,), table, warnings = rewrite(app(**probes))

    assert (container, table, warnings) == (app(**probes), None, [])


def test_restartable_init_containers_are_like_others() -> None:
    before = {"name": "log", "readinessProbe": {"httpGet": {"port": 3333}}}

    _, table, _ = rewrite(before=(before,))

    assert table == {"/app-health/log/readyz": {"httpGet": {"port": 3333}}}
    assert before["readinessProbe"]["httpGet"]["path"] == "/app-health/log/readyz"  # type: ignore[index]  # an object


def test_a_port_that_cannot_be_told_leaves_the_probe_as_it_is() -> None:
    probes: Object = {
        "readinessProbe": {"httpGet": {"port": "gone"}},
        "livenessProbe": {"tcpSocket": {}},
        "startupProbe": {"httpGet": {"port": 70000}},
    }

    (container,), table, warnings = rewrite(app(**probes))

    assert (container, table) == (app(**probes), None)
    assert warnings[0] == (
        "spec.containers[0].readinessProbe.httpGet.port='gone': expected a port in 1..65535 or the "
        "name of one that the container declares; the probe is left as it is"
    )
    assert len(warnings) == 3


def test_names_of_ports_are_those_of_the_same_container() -> None:
    probe = {"httpGet": {"port": "web"}}
    containers, table, _ = rewrite(app(), {"name": "b", "livenessProbe": probe})

    assert table is None
    assert containers[1]["livenessProbe"] == {"httpGet": {"port": "web"}}


def test_the_agents_port_may_be_another() -> None:
    (container,), _, _ = rewrite(app(readinessProbe={"httpGet": {"port": 80}}), port=15999)

    assert container["readinessProbe"]["httpGet"]["port"] == 15999


def test_without_a_status_port_nobody_would_answer() -> None:
    probe = {"httpGet": {"port": 80}}
    (container,), table, warnings = rewrite(app(readinessProbe=probe), port=0)

    assert (container["readinessProbe"], table) == ({"httpGet": {"port": 80}}, None)
    assert warnings == [
        "probes are not rewritten: the agent's status port is 0, nobody would answer"
    ]
    assert rewrite(app(), port=0)[2] == []


def test_probes_that_were_rewritten_before_have_no_second_entry() -> None:
    probe = {"httpGet": {"path": "/app-health/app/livez", "port": 15020}}

    (container,), table, _ = rewrite(app(livenessProbe=probe))

    assert (container["livenessProbe"], table) == (probe, None)


def test_the_meshs_port_is_the_agents_unless_the_pod_moves_it() -> None:
    probe = {"httpGet": {"port": 15020}}

    (container,), table, _ = rewrite(app(livenessProbe=dict(probe)), port=15999)
    (_, again, _) = rewrite(container, port=15999)

    assert rewrite(app(livenessProbe=dict(probe)))[1] is None
    assert table == {"/app-health/app/livez": {"httpGet": {"port": 15020}}}
    assert again is None


def test_injected_again_old_entries_win_and_new_ones_are_added() -> None:
    old = {"/app-health/app/livez": {"httpGet": {"port": 1}}, "/app-health/z/livez": {}}
    env = [{"name": "ISTIO_KUBE_APP_PROBERS", "value": json.dumps(old)}]

    _, table, _ = rewrite(
        app(livenessProbe={"httpGet": {"port": 2}}, readinessProbe={"httpGet": {"port": 3}}),
        env=env,
        again=True,
    )

    assert table == {**old, "/app-health/app/readyz": {"httpGet": {"port": 3}}}
    assert len(env) == 1


def test_injected_again_without_a_table_it_is_added() -> None:
    _, table, _ = rewrite(app(livenessProbe={"httpGet": {"port": 2}}), again=True)

    assert table == {"/app-health/app/livez": {"httpGet": {"port": 2}}}


@pytest.mark.parametrize("value", ["{", "[]", "null", "[" * 100_000])
def test_an_old_table_that_cannot_be_read_is_left_alone(value: str) -> None:
    proxy: Object = {
        "name": "istio-proxy",
        "env": [{"name": "ISTIO_KUBE_APP_PROBERS", "value": value}],
    }
    spec = {"containers": [app(livenessProbe={"httpGet": {"port": 2}})]}

    warnings = rewrite_probes(spec, proxy, status_port=15020, mesh_status_port=15020, again=True)

    assert warnings == ["ISTIO_KUBE_APP_PROBERS: expected a JSON object; it is left as it is"]
    assert proxy["env"] == [{"name": "ISTIO_KUBE_APP_PROBERS", "value": value}]


def test_in_a_pod_that_was_not_injected_the_users_variable_is_no_table() -> None:
    env = [{"name": "ISTIO_KUBE_APP_PROBERS", "value": "x"}]

    _, table, _ = rewrite(app(livenessProbe={"httpGet": {"port": 2}}), env=env)

    assert table == {"/app-health/app/livez": {"httpGet": {"port": 2}}}
