import json
from collections.abc import Mapping

import pytest

from agent.cloud.platforms import (
    Ask,
    Conversation,
    Found,
    aws,
    azure,
    gcp,
    gcp_instance,
    gcp_labels,
    gcp_static,
    gcp_token,
)

GCP = {
    "/computeMetadata/v1/project/project-id": "shop",
    "/computeMetadata/v1/project/numeric-project-id": "17",
    "/computeMetadata/v1/instance/attributes/cluster-name": "blue",
    "/computeMetadata/v1/instance/attributes/cluster-location": "europe-west1",
    "/computeMetadata/v1/instance/id": "4711",
    "/computeMetadata/v1/instance/zone": "projects/17/zones/europe-west1-b",
}
AWS = {
    "/latest/api/token": "secret",
    "/latest/meta-data/iam/info": '{"InstanceProfileArn": "arn:aws:iam::1:x"}',
    "/latest/meta-data/placement/region": "eu-west-1",
    "/latest/meta-data/placement/availability-zone": "eu-west-1b",
    "/latest/meta-data/instance-id": "i-1",
}
VERSION_ERROR = json.dumps(
    {"error": "api-version", "newest-versions": ["2021-02-01", "2020-09-01"]}
)


def converse(
    conversation: Conversation, answers: Mapping[str, str]
) -> tuple[Found | None, list[Ask]]:
    """Return what came of it, and what was asked."""
    asked: list[Ask] = []
    answer = None
    while True:
        try:
            ask = conversation.send(answer)
        except StopIteration as stop:
            return stop.value, asked
        asked.append(ask)
        answer = answers.get(ask.target)


def test_aws_is_known_by_its_identity() -> None:
    found, asked = converse(aws(is_certain=False), AWS)

    assert found == Found(
        {
            "aws_region": "eu-west-1",
            "aws_availability_zone": "eu-west-1b",
            "aws_instance_id": "i-1",
        },
        {"region": "eu-west-1", "zone": "eu-west-1b"},
    )
    assert (asked[0].method, asked[0].headers) == (
        "PUT",
        (("X-aws-ec2-metadata-token-ttl-seconds", "60"),),
    )
    assert {ask.headers for ask in asked[1:]} == {(("X-aws-ec2-metadata-token", "secret"),)}


def test_aws_may_have_no_tokens() -> None:
    answers = {target: text for target, text in AWS.items() if target != "/latest/api/token"}

    found, asked = converse(aws(is_certain=False), answers)

    assert found
    assert {ask.headers for ask in asked[1:]} == {()}


def test_another_machine_is_not_aws_unless_it_must_be() -> None:
    assert converse(aws(is_certain=False), {})[0] is None
    found, asked = converse(aws(is_certain=True), {"/latest/meta-data/instance-id": "i-1"})
    assert found == Found({"aws_instance_id": "i-1"}, {})
    assert all("iam" not in ask.target for ask in asked)


def test_google_says_project_cluster_and_zone() -> None:
    found, asked = converse(gcp(), GCP)

    assert found == Found(
        {
            "gcp_project": "shop",
            "gcp_project_number": "17",
            "gcp_gke_cluster_name": "blue",
            "gcp_location": "europe-west1",
            "gcp_gce_instance_id": "4711",
            "gcp_gke_cluster_url": "https://container.googleapis.com/v1/projects/shop"
            "/locations/europe-west1/clusters/blue",
        },
        {"region": "europe-west1", "zone": "europe-west1-b"},
    )
    assert {ask.headers for ask in asked} == {(("Metadata-Flavor", "Google"),)}


def test_a_machine_outside_a_cluster_is_where_its_zone_is() -> None:
    answers = {target: text for target, text in GCP.items() if "cluster" not in target}

    found, _ = converse(gcp(), answers)

    assert found
    assert found.metadata["gcp_location"] == "europe-west1-b"
    assert "gcp_gke_cluster_url" not in found.metadata


def test_another_machine_is_not_google() -> None:
    found, asked = converse(gcp(), {})

    assert found is None
    assert len(asked) == 1


def test_the_environment_may_know_all_of_google() -> None:
    found = gcp_static(
        "shop|17|blue|europe-west1-b", quota_project="paid", zone="europe-west1-c", resolv_conf=""
    )

    assert found == Found(
        {
            "gcp_project": "shop",
            "gcp_project_number": "17",
            "gcp_gke_cluster_name": "blue",
            "gcp_location": "europe-west1-b",
            "gcp_quota_project": "paid",
            "gcp_zone": "europe-west1-c",
            "gcp_gke_cluster_url": "https://container.googleapis.com/v1/projects/shop"
            "/locations/europe-west1-b/clusters/blue",
        },
        {"region": "europe-west1", "zone": "europe-west1-c"},
    )


@pytest.mark.parametrize(
    ("resolv_conf", "locality"),
    [
        (
            "nameserver 10.0.0.10\nsearch svc.cluster.local us-east1-d.c.shop.internal\n",
            {"region": "us-east1", "zone": "us-east1-d"},
        ),
        ("search cluster.local c.shop.internal x.c.y.internal\n\n", {}),
        ("", {}),
    ],
)
def test_the_zone_may_stand_among_the_search_domains(
    resolv_conf: str, locality: dict[str, str]
) -> None:
    found = gcp_static("shop", quota_project="", zone="", resolv_conf=resolv_conf)

    assert found == Found({"gcp_project": "shop"}, locality)


def test_azure_is_asked_in_its_newest_version() -> None:
    compute = {
        "name": "vm",
        "location": "westeurope",
        "vmId": "1-2",
        "zone": "3",
        "tagsList": [{"name": "team", "value": "red"}, "?"],
        "tags": "ignored:1",
    }
    answers = {
        "/metadata/instance": VERSION_ERROR,
        "/metadata/instance?api-version=2021-02-01": json.dumps({"compute": compute}),
    }

    found, asked = converse(azure(), answers)

    assert found == Found(
        {
            "azure_name": "vm",
            "azure_location": "westeurope",
            "azure_vmId": "1-2",
            "azure_team": "red",
        },
        {"region": "westeurope", "zone": "3"},
    )
    assert asked[0].any_status
    assert {ask.headers for ask in asked} == {(("Metadata", "True"),)}


def test_azure_without_versions_and_lists_is_understood_too() -> None:
    compute = {"location": "westus", "tags": "a:1;b:2;broken"}
    target = "/metadata/instance?api-version=2019-08-15"

    found, _ = converse(azure(), {target: json.dumps({"compute": compute})})

    assert found == Found(
        {"azure_location": "westus", "azure_a": "1", "azure_b": "2"}, {"region": "westus"}
    )


@pytest.mark.parametrize("answer", ["", "{", "[]", '{"compute": 1}'])
def test_what_is_no_answer_of_azure_is_another_cloud(answer: str) -> None:
    answers = {"/metadata/instance?api-version=2019-08-15": answer}

    assert converse(azure(), answers)[0] is None


def test_a_machine_of_google_has_labels_where_project_zone_and_name_are_known() -> None:
    found = Found({"gcp_project": "shop", "gcp_gce_instance": "vm-1"}, {"zone": "europe-west1-b"})

    assert gcp_instance(found) == (
        "/compute/v1/projects/shop/zones/europe-west1-b/instances/vm-1?fields=labels"
    )
    assert gcp_instance(found._replace(locality={})) == ""


@pytest.mark.parametrize(
    ("answer", "token"),
    [('{"access_token": "secret"}', "secret"), ('{"access_token": 5}', ""), ("x", ""), (None, "")],
)
def test_a_token_is_text(answer: str | None, token: str) -> None:
    assert gcp_token(answer) == token


@pytest.mark.parametrize(
    ("answer", "labels"),
    [
        ('{"labels": {"app": "web", "odd": 5}}', {"app": "web"}),
        ('{"labels": []}', {}),
        ("{}", {}),
        ("not JSON", {}),
    ],
)
def test_labels_are_texts(answer: str, labels: dict[str, str]) -> None:
    assert gcp_labels(answer) == labels
