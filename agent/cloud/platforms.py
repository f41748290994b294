"""Conversations with the metadata services of clouds, without I/O.

Each is a generator: it yields what to ask and is sent the answer, None where there was none, and
returns what it found, or None in another cloud. client.py does the asking.

This is imported by a child process that lives for milliseconds; hence the late import of JSON.

Source: bootstrap.md section 4.7.
"""

from collections.abc import Generator, Mapping
from typing import Final, NamedTuple, cast

Headers = tuple[tuple[str, str], ...]

AWS_TOKEN: Final = "/latest/api/token"  # noqa: S105 - a path
AWS_DATA: Final = "/latest/meta-data/"
AWS_IDENTITY: Final = "arn:aws:iam"
GCP_DATA: Final = "/computeMetadata/v1/"
#: Of the machine's own service account, as JSON.
GCP_TOKEN: Final = f"{GCP_DATA}instance/service-accounts/default/token"
GCP_HEADERS: Final = (("Metadata-Flavor", "Google"),)
GCP_INSTANCE: Final = "/compute/v1/projects/{}/zones/{}/instances/{}?fields=labels"
GCP_CLUSTER_URL: Final = "https://container.googleapis.com/v1/projects/{}/locations/{}/clusters/{}"
AZURE_DATA: Final = "/metadata/instance"
AZURE_VENDOR: Final = "Microsoft Corporation"
#: Of the API, if the service does not name a newer one.
AZURE_VERSION: Final = "2019-08-15"


class Ask(NamedTuple):
    """A request to the metadata service."""

    method: str
    target: str
    headers: Headers = ()
    #: The answer to a bad request is one too.
    any_status: bool = False


class Found(NamedTuple):
    """What a cloud says of this pod's machine; nothing that it does not know."""

    metadata: Mapping[str, str]
    locality: Mapping[str, str]
    #: Of a machine that is no node of Kubernetes.
    labels: Mapping[str, str] = {}


Conversation = Generator[Ask, str | None, Found | None]


def found(metadata: Mapping[str, str | None], *, region: str | None, zone: str | None) -> Found:
    """Return the values that are there."""
    locality = {"region": region, "zone": zone}
    return Found(
        {name: value for name, value in metadata.items() if value},
        {name: value for name, value in locality.items() if value},
    )


def aws(*, is_certain: bool) -> Conversation:
    """Return the conversation with AWS; without a token where the service gives none."""
    lifetime = (("X-aws-ec2-metadata-token-ttl-seconds", "60"),)
    token = yield Ask("PUT", AWS_TOKEN, lifetime)
    headers = (("X-aws-ec2-metadata-token", token),) if token else ()
    if not is_certain:
        identity = yield Ask("GET", f"{AWS_DATA}iam/info", headers)
        if AWS_IDENTITY not in (identity or ""):
            return None
    region = yield Ask("GET", f"{AWS_DATA}placement/region", headers)
    zone = yield Ask("GET", f"{AWS_DATA}placement/availability-zone", headers)
    instance = yield Ask("GET", f"{AWS_DATA}instance-id", headers)
    metadata = {
        "aws_region": region,
        "aws_availability_zone": zone,
        "aws_instance_id": instance,
    }
    return found(metadata, region=region, zone=zone)


def gcp() -> Conversation:
    """Return the conversation with Google Cloud."""
    keys = {
        "gcp_project": "project/project-id",
        "gcp_project_number": "project/numeric-project-id",
        "gcp_gke_cluster_name": "instance/attributes/cluster-name",
        "gcp_location": "instance/attributes/cluster-location",
        "gcp_gce_instance": "instance/name",
        "gcp_gce_instance_id": "instance/id",
        "gcp_gce_instance_template": "instance/attributes/instance-template",
        "gcp_gce_instance_created_by": "instance/attributes/created-by",
    }
    metadata: dict[str, str | None] = {}
    for name, path in keys.items():
        metadata[name] = yield Ask("GET", GCP_DATA + path, GCP_HEADERS)
        if not metadata["gcp_project"]:
            return None
    where = yield Ask("GET", f"{GCP_DATA}instance/zone", GCP_HEADERS)
    zone = (where or "").rpartition("/")[2]  # projects/N/zones/Z
    metadata["gcp_location"] = metadata["gcp_location"] or zone
    return found(_with_cluster_url(metadata), region=gcp_region(zone), zone=zone)


def gcp_instance(found: Found) -> str:
    """Return where the compute API has this machine's labels, '' where that is not known."""
    parts = (
        found.metadata.get("gcp_project"),
        found.locality.get("zone"),
        found.metadata.get("gcp_gce_instance"),
    )
    return GCP_INSTANCE.format(*parts) if all(parts) else ""


def gcp_token(answer: str | None) -> str:
    """Return the access token in the answer to GCP_TOKEN, '' where there is none."""
    token = _object(answer).get("access_token")
    return token if isinstance(token, str) else ""


def gcp_labels(answer: str) -> Mapping[str, str]:
    """Return the labels in the compute API's answer."""
    labels = _object(answer).get("labels")
    pairs = labels.items() if isinstance(labels, dict) else ()
    return {str(name): value for name, value in pairs if isinstance(value, str)}


def gcp_static(text: str, *, quota_project: str, zone: str, resolv_conf: str) -> Found:
    """Return what GCP_METADATA says; nothing is asked then.

    Args:
        text: PROJECT_ID|PROJECT_NUMBER|CLUSTER_NAME|CLUSTER_ZONE.
        quota_project: GCP_QUOTA_PROJECT.
        zone: GCP_ZONE; without one it is looked for in the resolver's configuration.
        resolv_conf: text of /etc/resolv.conf.
    """
    project, number, cluster, location, *_ = (*text.split("|"), "", "", "", "")
    metadata: dict[str, str | None] = {
        "gcp_project": project,
        "gcp_project_number": number,
        "gcp_gke_cluster_name": cluster,
        "gcp_location": location,
        "gcp_quota_project": quota_project,
        "gcp_zone": zone,
    }
    zone = zone or _search_zone(resolv_conf)
    return found(_with_cluster_url(metadata), region=gcp_region(zone), zone=zone)


def gcp_region(zone: str) -> str:
    """Return the region of a zone: europe-west1 of europe-west1-b."""
    return zone.rpartition("-")[0]


def _search_zone(resolv_conf: str) -> str:
    """Return the zone in a search entry `<zone>.c.<project>.internal`, '' without one."""
    for line in resolv_conf.splitlines():
        keyword, *domains = line.split() or [""]
        for domain in domains if keyword == "search" else ():
            zone, mark, rest = domain.partition(".c.")
            if mark and rest.endswith(".internal") and zone.count("-") == 2:  # noqa: PLR2004 - a-b-c
                return zone
    return ""


def _with_cluster_url(metadata: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """Add where the cluster is, if all three parts of it are known."""
    parts = [metadata[name] for name in ("gcp_project", "gcp_location", "gcp_gke_cluster_name")]
    if not all(parts):
        return metadata
    return {**metadata, "gcp_gke_cluster_url": GCP_CLUSTER_URL.format(*parts)}


def azure() -> Conversation:
    """Return the conversation with Azure, in the newest version of its API."""
    headers = (("Metadata", "True"),)
    offered = yield Ask("GET", AZURE_DATA, headers, any_status=True)
    versions = _object(offered).get("newest-versions")
    newest = versions[0] if isinstance(versions, list) and versions else AZURE_VERSION
    version = max(str(newest), AZURE_VERSION)
    answer = yield Ask("GET", f"{AZURE_DATA}?api-version={version}", headers)
    compute = _object(answer).get("compute")
    if not isinstance(compute, dict):
        return None
    values = cast("Mapping[str, object]", compute)
    metadata = {
        f"azure_{name}": str(values.get(name) or "") for name in ("name", "location", "vmId")
    }
    tags = {f"azure_{name}": value for name, value in _azure_tags(values).items()}
    location = metadata["azure_location"]
    return found({**metadata, **tags}, region=location, zone=str(values.get("zone") or ""))


def _azure_tags(compute: Mapping[str, object]) -> dict[str, str]:
    """Return the tags, from the list or else from 'name:value;name:value'."""
    listed = compute.get("tagsList")
    if isinstance(listed, list) and listed:
        entries = [entry for entry in listed if isinstance(entry, dict)]
        return {str(entry.get("name")): str(entry.get("value", "")) for entry in entries}
    pairs = (pair.partition(":") for pair in str(compute.get("tags") or "").split(";"))
    return {name: value for name, colon, value in pairs if colon}


def _object(text: str | None) -> Mapping[str, object]:
    import json  # noqa: PLC0415 - most answers are no JSON

    try:
        parsed = json.loads(text or "")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
