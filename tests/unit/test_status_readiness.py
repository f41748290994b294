import pytest

from agent.status.readiness import CONFIG_TARGET, LIVE_TARGET, LOCAL, judge_config, judge_live

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


def test_local_resources_are_not_istiods() -> None:
    assert judge_config("", LOCAL) == (
        "config not received from AGENT_LOCAL_XDS: "
        "cds updates: 0 successful, 0 rejected; lds updates: 0 successful, 0 rejected"
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
    assert judge_config(stats) == reason


def test_a_live_envoy_has_started_its_workers() -> None:
    assert judge_live("server.state: 0\nlistener_manager.workers_started: 1\n") is None


FAILED = "failed to get readiness stats: "


@pytest.mark.parametrize(
    ("stats", "reason"),
    [
        ("", f"{FAILED}server.state is not yet updated: "),
        (
            "server.state: 0",
            f"{FAILED}listener_manager.workers_started is not yet updated: server.state: 0",
        ),
        ("server.state: x", (f"{FAILED}failed parsing Envoy stat server.state "
                            "(error: expected a whole number) line: server.state: x")),
        ("server.state: 1\nlistener_manager.workers_started: 1",
         "server is not live, current state is: DRAINING"),
        ("server.state: 2\nlistener_manager.workers_started: 0",
         "server is not live, current state is: PRE_INITIALIZING"),
        ("server.state: 3\nlistener_manager.workers_started: 0",
         "server is not live, current state is: INITIALIZING"),
        ("server.state: 9\nlistener_manager.workers_started: 1",
         "server is not live, current state is: UNKNOWN"),
        ("server.state: 0\nlistener_manager.workers_started: 0",
         "workers have not yet started"),
    ],
)  # fmt: skip
def test_the_reason_says_what_envoy_lacks(stats: str, reason: str) -> None:
    assert judge_live(stats) == reason
