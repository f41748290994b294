"""References to OCI images, and the names under which modules are kept.

Source: xds-identity-dns.md sections 3.4 and 3.5; the grammar is that of Docker references.
"""

import re
from typing import Final, NamedTuple

SCHEME: Final = "oci://"
DOCKER_HUB: Final = "index.docker.io"
DEFAULT_TAG: Final = "latest"
SHA256: Final = "sha256:"

SEGMENT: Final = r"[a-z0-9]+([._\-]+[a-z0-9]+)*"
REPOSITORY: Final = rf"{SEGMENT}(/{SEGMENT})*"
TAG: Final = r"[A-Za-z0-9_.\-]{1,127}"
DIGEST: Final = r"sha256:[0-9a-f]{64}"
REGISTRY: Final = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.\-]+)(:[0-9]+)?"


class Reference(NamedTuple):
    """Where an image is."""

    registry: str  #: host or host:port
    repository: str
    tag: str  #: '' where a digest says which
    digest: str = ""  #: 'sha256:…'

    @property
    def name(self) -> str:
        """Return the image without tag and digest."""
        return f"{self.registry}/{self.repository}"

    @property
    def version(self) -> str:
        """Return what follows /manifests/ in its URL."""
        return self.digest or self.tag


def parse_reference(url: str) -> Reference:
    """Return the image that an oci:// URL names; its tag is of no account beside a digest.

    Raises:
        ValueError: it names none.
    """
    text = url.removeprefix(SCHEME).partition("?")[0].partition("#")[0]
    name, at, digest = text.partition("@")
    if at and not re.fullmatch(DIGEST, digest):
        # What is before it may be a user and a password.
        raise ValueError(f"{at + digest!r}: expected a digest such as @sha256:<64 hex digits>")
    name, tag = _split_tag(name)
    registry, repository = _split_registry(name)
    if not re.fullmatch(REPOSITORY, repository) or not re.fullmatch(REGISTRY, registry):
        raise ValueError(f"{text!r}: expected an image, as registry/repository:tag")
    if tag and not re.fullmatch(TAG, tag):
        raise ValueError(f"{text!r}: {tag!r} is no tag")
    return Reference(registry, repository, "" if digest else tag or DEFAULT_TAG, digest)


def module_name(url: str) -> str:
    """Return what all versions of a module have in common: an image's name, otherwise the URL."""
    if not url.startswith(SCHEME):
        return url
    try:
        return SCHEME + parse_reference(url).name
    except ValueError:
        return url


def pinned_checksum(url: str) -> str:
    """Return the checksum that is part of an oci:// URL, '' if there is none."""
    digest = url.partition("@")[2] if url.startswith(SCHEME) else ""
    return digest.removeprefix(SHA256) if digest.startswith(SHA256) else ""


def shown_url(url: str) -> str:
    """Return a URL for people, without what may be secret in it: user, password and query."""
    if url.startswith(SCHEME):
        return url
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def _split_tag(name: str) -> tuple[str, str]:
    base, _, tag = name.rpartition(":")
    return (base, tag) if base and "/" not in tag else (name, "")


def _split_registry(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, repository = first, rest
    else:
        registry, repository = DOCKER_HUB, name
    if registry == "docker.io":
        registry = DOCKER_HUB
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return registry, repository
