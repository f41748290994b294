import pytest

from agent.cloud.settings import CloudSettings, parse_cloud
from agent.reader import Reader


def parse(**environ: str) -> CloudSettings:
    return parse_cloud(Reader(environ), is_ipv6=False)


@pytest.mark.parametrize(
    ("name", "platforms"),
    [("AWS", ("aws",)), ("gcp", ("gcp",)), ("Azure", ("azure",)), ("none", ())],
)
def test_a_platform_is_named_in_any_case(name: str, platforms: tuple[str, ...]) -> None:
    assert parse(CLOUD_PLATFORM=name).platforms == platforms


def test_by_default_each_is_asked() -> None:
    assert parse(KUBERNETES_SERVICE_HOST="10.0.0.1") == CloudSettings(
        platforms=("gcp", "aws", "azure")
    )


def test_labels_of_a_machine_count_outside_kubernetes() -> None:
    assert parse().gcp_compute_host == "compute.googleapis.com"


def test_an_unknown_platform_is_told_and_each_is_asked() -> None:
    read = Reader({"CLOUD_PLATFORM": "moon"})

    assert len(parse_cloud(read, is_ipv6=False).platforms) == 3
    assert read.warnings == [
        "CLOUD_PLATFORM='moon': expected aws, azure, gcp or none; using the default"
    ]


def test_where_all_is_known_nobody_is_asked() -> None:
    assert parse(GCP_METADATA="p|1|c|z").platforms == ()
    assert parse(GCP_METADATA="p|1|c|z", CLOUD_PLATFORM="aws").platforms == ("aws",)


def test_the_services_may_be_elsewhere() -> None:
    read = Reader({"GCE_METADATA_HOST": "10.0.0.1:8080"})

    settings = parse_cloud(read, is_ipv6=True)

    assert settings.gcp_host == "10.0.0.1:8080"
    assert settings.aws_host == "fd00:ec2::254"


@pytest.mark.parametrize("text", ["", "10.0.0.1:99999", "10.0.0.1:٣", "[::1"])
def test_what_is_no_server_is_the_usual_one(text: str) -> None:
    read = Reader({"GCE_METADATA_HOST": text})

    assert parse_cloud(read, is_ipv6=False).gcp_host == "169.254.169.254"
    assert len(read.warnings) == bool(text)
