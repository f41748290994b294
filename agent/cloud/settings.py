"""Which clouds are asked, and where.

Source: bootstrap.md sections 2.1 and 4.7.
"""

from typing import Final, NamedTuple

from agent.reader import Reader, parse_host_port, parse_text

#: What CLOUD_PLATFORM stands for. All three services have one address: whichever cloud it is, it
#: answers the questions of the others at once, with an error.
PLATFORMS: Final = {
    "": ("gcp", "aws", "azure"),
    "aws": ("aws",),
    "azure": ("azure",),
    "gcp": ("gcp",),
    "none": (),
}
HTTP_PORT: Final = 80
ADDRESS: Final = "169.254.169.254"
GCP_COMPUTE: Final = "compute.googleapis.com"
AWS_IPV6: Final = "fd00:ec2::254"


class CloudSettings(NamedTuple):
    """Where to look for the pod's cloud."""

    #: Clouds that may be it, in this order. CLOUD_PLATFORM.
    platforms: tuple[str, ...] = ()
    #: Host of each cloud's metadata service, or host:port. GCE_METADATA_HOST.
    gcp_host: str = ADDRESS
    aws_host: str = ADDRESS
    azure_host: str = ADDRESS
    #: Of the API that knows the labels of GCP's machines; '' in Kubernetes, whose pods have labels
    #: of their own. KUBERNETES_SERVICE_HOST.
    gcp_compute_host: str = ""


def parse_cloud(read: Reader, *, is_ipv6: bool) -> CloudSettings:
    """Return the branch; with GCP_METADATA everything is known and nobody is asked."""
    platforms = PLATFORMS[read.take("CLOUD_PLATFORM", parse_platform, default="")]
    is_known = "gcp" in platforms and bool(read.take("GCP_METADATA", parse_text, default=""))
    return CloudSettings(
        platforms=() if is_known else platforms,
        gcp_host=read.take("GCE_METADATA_HOST", parse_host, default=ADDRESS),
        aws_host=AWS_IPV6 if is_ipv6 else ADDRESS,
        gcp_compute_host="" if "KUBERNETES_SERVICE_HOST" in read.values else GCP_COMPUTE,
    )


def parse_platform(text: str) -> str:
    """Return a cloud's name in lower case."""
    if text.lower() not in PLATFORMS:
        raise ValueError("expected aws, azure, gcp or none")
    return text.lower()


def parse_host(text: str) -> str:
    """Return a host, with its port if it names one; nothing stands for the usual one."""
    if text:
        parse_host_port(text, default_port=HTTP_PORT)
    return text or ADDRESS
