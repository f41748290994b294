"""Source: status-lifecycle.md section 11.16."""

import pytest

from agent.inject.webhook.openshift import is_openshift, proxy_ids, without_assigned_ids

UIDS = "openshift.io/sa.scc.uid-range"
GROUPS = "openshift.io/sa.scc.supplemental-groups"


@pytest.mark.parametrize(
    ("annotations", "ids"),
    [
        ({}, (1337, 1337)),
        ({UIDS: "1000620000/10000"}, (1000629999, 1000629999)),
        ({UIDS: "1000-2000", GROUPS: "5/10,7-9"}, (2000, 14)),
        ({UIDS: "x", GROUPS: "y"}, (1337, 1337)),
    ],
)
def test_ids_are_the_ends_of_the_namespaces_ranges(
    annotations: dict[str, str], ids: tuple[int, int]
) -> None:
    assert proxy_ids(annotations) == ids
    assert is_openshift(annotations) is (UIDS in annotations)


def proxy(**context: int) -> dict[str, object]:
    return {"name": "istio-proxy", "securityContext": {"privileged": False, **context}}


def app(**context: int) -> dict[str, object]:
    return {"name": "app", "securityContext": context}


def test_ids_that_the_platform_gave_the_proxy_are_dropped() -> None:
    spec = {"containers": [app(runAsUser=7), app(runAsUser=5), proxy(runAsUser=5, runAsGroup=6)]}

    assert without_assigned_ids(spec)["containers"][2] == proxy()


def test_ids_of_the_users_own_stay() -> None:
    spec = {"containers": [app(runAsUser=7), {"name": "b"}, proxy(runAsUser=5)]}

    assert without_assigned_ids(spec) == spec
    assert without_assigned_ids({}) == {"containers": []}


def test_unset_counts_as_root() -> None:
    spec = {"containers": [app(), proxy(runAsUser=0, runAsGroup=0)]}

    assert without_assigned_ids(spec)["containers"][1] == proxy()
    assert (
        without_assigned_ids({"containers": [{"name": "a"}, proxy(runAsUser=0)]})["containers"][1]
        == proxy()
    )
