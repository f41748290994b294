from collections.abc import Callable
from typing import Any

import pytest

from agent.status.outcomes import Outcome
from agent.status.page.overview import CERTIFICATES, Parts, describe, overview
from agent.status.probes import GrpcProbe, HttpProbe, Probe, TcpProbe

PARTS = Parts(
    time=1000.1234,
    process={"uptime_seconds": 5.0},
    readiness={"ready": True},
    documents={},
    probers={},
    outcomes={},
    asked={"readiness": 1, "probes": 2, "scrapes": 3},
    dns_queries=None,
    envoy={"enabled": True},
)


def told(**documents: object) -> dict[str, Any]:
    """Return the document where parts of the agent say this."""

    def saying(what: object) -> Callable[[], object]:
        return lambda: what

    tell = {name: saying(what) for name, what in documents.items()}
    return overview(PARTS._replace(documents=tell))


def certificate(until: float) -> dict[str, object]:
    return {"subject": f"CN={until:g}", "not_after": until}


def test_what_is_not_there_is_none_and_the_rest_is_told() -> None:
    found = overview(PARTS)

    assert found["time"] == 1000.123
    assert found["readiness"] == {"ready": True}
    assert found["envoy"] == {"enabled": True}
    assert [found[name] for name in ("xds", "certificates", "dns", "drain")] == [None] * 4
    assert found["probes"] == []
    assert found["agent"] == {
        "pod": "",
        "namespace": "",
        "kind": "",
        "address": "",
        "version": None,
        "uptime_seconds": 5.0,
    }
    assert found["activity"] == {
        "pushes": None,
        "refused": None,
        "xds_requests": None,
        "readiness": 1,
        "probes": 2,
        "scrapes": 3,
        "dns_queries": None,
    }


def test_documents_are_passed_on_and_counts_are_gathered() -> None:
    found = told(
        syncz={"types": {}},
        drain={"state": "running"},
        dns={"hosts": 3},
        passed={"requests": 7, "responses": 5, "refused": 1},
    )

    assert found["xds"] == {"types": {}}
    assert found["drain"] == {"state": "running"}
    assert found["dns"] == {"hosts": 3}
    activity = found["activity"]
    assert (activity["xds_requests"], activity["pushes"], activity["refused"]) == (7, 5, 1)


def test_the_pod_is_named_by_the_node() -> None:
    agent = told(pod={"node": "router~10.0.0.1~gate-1.edge~edge.svc", "version": "v1"})["agent"]

    assert agent["kind"] == "router"
    assert agent["address"] == "10.0.0.1"
    assert (agent["pod"], agent["namespace"], agent["version"]) == ("gate-1", "edge", "v1")


def test_bundles_are_cut_to_those_that_expire_first() -> None:
    bundle = [certificate(until) for until in (9, 3, 7, 5, 1)]
    unreadable = {"unreadable": "no certificate"}
    found = told(
        certs={
            "chain": [certificate(2)],
            "trust_bundle": bundle,
            "files": [{"name": "file-root:/roots", "certificates": [*bundle, unreadable]}],
        }
    )["certificates"]

    assert CERTIFICATES == 4
    assert found["chain"] == [certificate(2)]
    assert found["trust_bundle"] == [certificate(until) for until in (1, 3, 5, 7)]
    assert found["trust_bundle_size"] == 5
    (file,) = found["files"]
    assert file["certificates"][:2] == [unreadable, certificate(1)]
    assert (file["name"], file["size"]) == ("file-root:/roots", 6)


def test_probes_are_shown_with_how_they_ended_last() -> None:
    outcome = Outcome(503, "overload", 990.0, 0.25, since=980.0, times=2)
    parts = PARTS._replace(
        probers={"/app-health/a/readyz": HttpProbe("/x", 80), "/app-health/a/livez": TcpProbe(81)},
        outcomes={"/app-health/a/readyz": outcome},
    )

    ready, live = overview(parts)["probes"]

    assert ready == {
        "path": "/app-health/a/readyz",
        "target": "HTTP :80 /x",
        "timeout_seconds": None,
        "last": {
            "status": 503,
            "reason": "overload",
            "at": 990.0,
            "seconds": 0.25,
            "since": 980.0,
            "times": 2,
            "success": False,
        },
    }
    assert live["last"] is None


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        (HttpProbe("/ready?a=b", 8080), "HTTP :8080 /ready?a=b"),
        (HttpProbe("/", 8443, is_tls=True), "HTTPS :8443 /"),
        (TcpProbe(3306), "TCP :3306"),
        (GrpcProbe(9000), "gRPC :9000"),
        (HttpProbe("/?token=hunter2", 80), "HTTP :80 /?token=<masked>"),
        (GrpcProbe(9000, "orders"), "gRPC :9000 orders"),
    ],
)
def test_a_probe_is_described_by_what_it_asks(probe: Probe, expected: str) -> None:
    assert describe(probe) == expected
