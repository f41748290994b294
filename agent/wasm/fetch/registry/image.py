"""Manifests of images: which platform's, and which of its layers holds the module.

Source: xds-identity-dns.md section 3.5.
"""

import json
import re
from typing import Any, Final, NamedTuple

from agent.wasm.fetch.errors import BAD_JSON

DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
OCI_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX: Final = "application/vnd.oci.image.index.v1+json"
INDEXES: Final = (DOCKER_INDEX, OCI_INDEX)
ACCEPTED: Final = f"{DOCKER_MANIFEST}, {OCI_MANIFEST}, {DOCKER_INDEX}, {OCI_INDEX}"

DOCKER_LAYER: Final = "application/vnd.docker.image.rootfs.diff.tar.gzip"
OCI_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
WASM_LAYER: Final = "application/vnd.module.wasm.content.layer.v1+wasm"
#: Layers of an image that is a module and its configuration.
ARTIFACT_LAYERS: Final = 2
DIGEST: Final = r"sha256:[0-9a-f]{64}"
#: The one that counts, wherever the pod runs: modules know no platform.
PLATFORM: Final = ("linux", "amd64")


class Layer(NamedTuple):
    """A part of an image."""

    digest: str
    media_type: str


class Manifest(NamedTuple):
    """What an image consists of."""

    is_docker: bool
    layers: tuple[Layer, ...]


class Choices(NamedTuple):
    """Where the module may be, in the order to look; and why not elsewhere."""

    archive: Layer | None  #: a tar.gz with plugin.wasm
    module: Layer | None  #: the module itself
    problems: tuple[str, ...]


def read_manifest(body: bytes, media_type: str) -> Manifest | str:
    """Return an image's manifest; of an index the digest of the manifest to ask for instead.

    Args:
        body: as the registry sent it.
        media_type: the answer's Content-Type.

    Raises:
        ValueError: it is neither.
    """
    try:
        said = json.loads(body)
    except BAD_JSON:
        raise ValueError("manifest is no JSON") from None
    if not isinstance(said, dict):
        raise ValueError("manifest is no JSON object")  # noqa: TRY004 - bad input, not a bug
    kind = media_type.partition(";")[0].strip().lower()
    if kind not in (*INDEXES, DOCKER_MANIFEST, OCI_MANIFEST):
        kind = said.get("mediaType") or (OCI_INDEX if "manifests" in said else OCI_MANIFEST)
    if kind in INDEXES:
        return _child(_objects(said, "manifests"))
    layers = [
        Layer(_digest(layer), str(layer.get("mediaType", ""))) for layer in _objects(said, "layers")
    ]
    return Manifest(kind == DOCKER_MANIFEST, tuple(layers))


def choose_layers(manifest: Manifest) -> Choices:
    """Return where to look for the module.

    Raises:
        ValueError: nowhere.
    """
    wanted = DOCKER_LAYER if manifest.is_docker else OCI_LAYER
    problems = []
    archive = manifest.layers[-1] if manifest.layers else None
    if archive is None:
        problems.append("there is no layer")
    elif archive.media_type != wanted:
        problems.append(f"the last layer is {archive.media_type!r}, expected {wanted!r}")
        archive = None
    module = None
    if not manifest.is_docker:
        module, problem = _artifact(manifest.layers)
        problems += [problem] if problem else []
    if archive is None and module is None:
        raise ValueError(bad_format(problems))
    return Choices(archive, module, tuple(problems))


def bad_format(problems: list[str] | tuple[str, ...]) -> str:
    """Return the text for an image without module."""
    return f"the given image is in invalid format as an OCI image: {'; '.join(problems)}"


def _artifact(layers: tuple[Layer, ...]) -> tuple[Layer | None, str]:
    if len(layers) != ARTIFACT_LAYERS:
        return None, f"there are {len(layers)} layers, expected {ARTIFACT_LAYERS} of an artifact"
    for layer in layers:
        if layer.media_type == WASM_LAYER:
            return layer, ""
    return None, f"no layer is {WASM_LAYER!r}"


def _child(children: list[dict[str, Any]]) -> str:
    for child in children:
        platform = child.get("platform")
        if not isinstance(platform, dict):
            return _digest(child)  # no platform is the usual one
        if (platform.get("os"), platform.get("architecture")) == PLATFORM:
            return _digest(child)
    raise ValueError(f"index has no image for {'/'.join(PLATFORM)}")


def _objects(said: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = said.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError(f"manifest: {name!r} is no list of objects")
    return found


def _digest(described: dict[str, Any]) -> str:
    digest = described.get("digest")
    if not isinstance(digest, str) or not re.fullmatch(DIGEST, digest):
        raise ValueError(f"manifest: {digest!r} is no sha256 digest")
    return digest
