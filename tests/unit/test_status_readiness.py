import pytest

from agent.status.readiness import (
    CONFIG_TARGET,
    GATE_TARGET,
    LIVE_TARGET,
    LOCAL,
    Shortfall,
    Standing,
    document,
    judge_config,
    judge_live,
    standing_after,
)

CDS = "cluster_manager.cds.update_success: {}\ncluster_manager.cds.update_rejected: {}\n"
LDS = "listener_manager.lds.update_success: {}\nlistener_manager.lds.update_rejected: {}\n"
NOT_RECEIVED = "config not received from XDS server (is Istiod running?): "
REJECTED = "config received from XDS server, but was rejected: "
NOT_FULLY = "config not fully received from XDS server: "


def test_the_filters_are_sent_literally() -> None:
    assert CONFIG_TARGET == (
        r"/stats?usedonly&filter=^(cluster_manager\.cds|listener_manager\.lds)"
        r"\.(update_success|update_rejected)$"
    )
    assert LIVE_TARGET == (
        r"/stats?usedonly&filter=^(server\.state|listener_manager\.workers_started)"
    )
    assert GATE_TARGET == (
        r"/stats?usedonly&filter=^(server\.state|listener_manager\.workers_started"
        r"|listener_manager\.total_listeners_active)"
    )


def test_local_resources_are_not_istiods() -> None:
    found = judge_config("", LOCAL)

    assert found == Shortfall(
        "envoy_config",
        "config not received from AGENT_LOCAL_XDS: "
        "cds updates: 0 successful, 0 rejected; lds updates: 0 successful, 0 rejected",
        ("cluster_manager.cds.update_success", "listener_manager.lds.update_success"),
    )


def test_both_received_is_enough() -> None:
    assert judge_config(CDS.format(1, 5) + LDS.format(2, 0)) is None
    assert judge_config("listener_manager.lds.update_success: 1\n" + CDS.format(1, 0)) is None


@pytest.mark.parametrize(
    ("stats", "reason"),
    [
        ("", NOT_RECEIVED + "cds updates: 0 successful, 0 rejected; "
                            "lds updates: 0 successful, 0 rejected"),
        (CDS.format(0, 2) + LDS.format(0, 3),
         NOT_RECEIVED + "cds updates: 0 successful, 2 rejected; "
                        "lds updates: 0 successful, 3 rejected"),
        (LDS.format(1, 0),
         NOT_FULLY + "cds updates: 0 successful, 0 rejected; "
                     "lds updates: 1 successful, 0 rejected"),
        (CDS.format(4, 0) + LDS.format(0, 0),
         NOT_FULLY + "cds updates: 4 successful, 0 rejected; "
                     "lds updates: 0 successful, 0 rejected"),
        (CDS.format(1, 0) + LDS.format(0, 1),
         REJECTED + "cds updates: 1 successful, 0 rejected; "
                    "lds updates: 0 successful, 1 rejected"),
        (CDS.format(0, 1) + LDS.format(1, 0),
         REJECTED + "cds updates: 0 successful, 1 rejected; "
                    "lds updates: 1 successful, 0 rejected"),
        ("cluster_manager.cds.update_success 1",
         ("envoy stat cluster_manager.cds.update_success missing separator. "
         "line:cluster_manager.cds.update_success 1")),
        ("cluster_manager.cds.update_success: 1: 2",
         ("envoy stat cluster_manager.cds.update_success missing separator. "
         "line:cluster_manager.cds.update_success: 1: 2")),
        ("cluster_manager.cds.update_success: -1",
         ("failed parsing Envoy stat cluster_manager.cds.update_success "
         "(error: expected a whole number) line: cluster_manager.cds.update_success: -1")),
    ],
)  # fmt: skip
def test_the_reason_counts_what_was_received(stats: str, reason: str) -> None:
    found = judge_config(stats)

    assert found
    assert (found.check, found.reason) == ("envoy_config", reason)


@pytest.mark.parametrize(
    ("stats", "missing"),
    [
        (CDS.format(1, 0), ("listener_manager.lds.update_success",)),
        (LDS.format(1, 0) + CDS.format(0, 2), ("cluster_manager.cds.update_success",)),
        ("cluster_manager.cds.update_success: x", ()),
    ],
)
def test_what_is_missing_is_named(stats: str, missing: tuple[str, ...]) -> None:
    found = judge_config(stats)

    assert found
    assert found.missing == missing


def test_a_live_envoy_has_started_its_workers() -> None:
    assert judge_live("server.state: 0\nlistener_manager.workers_started: 1\n") is None


@pytest.mark.parametrize(
    ("listeners", "is_ready"),
    [("", False), ("listener_manager.total_listeners_active: 2\n", False),
     ("listener_manager.total_listeners_active: 3\n", True)],
)  # fmt: skip
def test_listeners_count_where_some_are_expected(
    listeners: str,
    is_ready: bool,  # noqa: FBT001 -- a column
) -> None:
    stats = "server.state: 0\nlistener_manager.workers_started: 1\n" + listeners

    assert (judge_live(stats, 3) is None) is is_ready
    assert judge_live(stats) is None


FAILED = "failed to get readiness stats: "


STATE = ("server.state",)
WORKERS = ("listener_manager.workers_started",)


@pytest.mark.parametrize(
    ("stats", "reason", "missing"),
    [
        ("", f"{FAILED}server.state is not yet updated: ", STATE),
        (
            "server.state: 0",
            f"{FAILED}listener_manager.workers_started is not yet updated: server.state: 0",
            WORKERS,
        ),
        ("server.state: x", (f"{FAILED}failed parsing Envoy stat server.state "
                            "(error: expected a whole number) line: server.state: x"), ()),
        ("server.state: 1\nlistener_manager.workers_started: 1",
         "server is not live, current state is: DRAINING", STATE),
        ("server.state: 2\nlistener_manager.workers_started: 0",
         "server is not live, current state is: PRE_INITIALIZING", STATE),
        ("server.state: 3\nlistener_manager.workers_started: 0",
         "server is not live, current state is: INITIALIZING", STATE),
        ("server.state: 9\nlistener_manager.workers_started: 1",
         "server is not live, current state is: UNKNOWN", STATE),
        ("server.state: 0\nlistener_manager.workers_started: 0",
         "workers have not yet started", WORKERS),
    ],
)  # fmt: skip
def test_the_reason_says_what_envoy_lacks(
    stats: str, reason: str, missing: tuple[str, ...]
) -> None:
    assert judge_live(stats) == Shortfall("envoy_live", reason, missing)


DNS = Shortfall("dns", "no name table")
LIVE = Shortfall("envoy_live", "workers have not yet started", WORKERS)


def test_a_standing_lasts_while_readiness_does_whatever_the_reason() -> None:
    first = standing_after(None, LIVE, 100.0)
    other = standing_after(first, DNS, 103.0)
    ready = standing_after(other, None, 110.0)
    still = standing_after(ready, None, 120.0)
    again = standing_after(still, DNS, 130.0)

    assert first == Standing(LIVE, 100.0, (LIVE, 100.0))
    assert other == Standing(DNS, 100.0, (DNS, 103.0))
    assert ready == still == Standing(None, 110.0, (DNS, 103.0))
    assert again == Standing(DNS, 130.0, (DNS, 130.0))


def test_the_document_says_what_is_missing_and_since_when() -> None:
    standing = standing_after(None, LIVE, 100.0)
    plane = {"address": "istiod:15012", "state": "connecting"}

    assert document(standing, {"xds": "no answer yet"}, plane, now=101.5, epoch=1000.0) == {
        "ready": False,
        "since": 1100.0,
        "seconds": 1.5,
        "check": "envoy_live",
        "reason": "workers have not yet started",
        "missing": ["listener_manager.workers_started"],
        "last_error": {
            "check": "envoy_live",
            "reason": "workers have not yet started",
            "time": 1100.0,
        },
        "details": {"xds": "no answer yet"},
        "control_plane": plane,
    }


def test_the_document_of_who_was_always_ready_has_nothing_missing() -> None:
    standing = standing_after(None, None, 100.0)

    assert document(standing, {}, None, now=100.0, epoch=0.0) == {
        "ready": True,
        "since": 100.0,
        "seconds": 0.0,
        "check": None,
        "reason": None,
        "missing": [],
        "last_error": None,
        "details": {},
        "control_plane": None,
    }
