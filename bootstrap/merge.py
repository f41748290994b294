"""Merging and validating proxy configuration documents; imported only where there are any.

Source: bootstrap.md sections 3.1 and 3.3.
"""

from collections.abc import Mapping
from typing import Final

from bootstrap.decode import decode_fields, without_zeros
from bootstrap.document import Document, parse
from bootstrap.schema import CLUSTER_NAME, PROXY_CONFIG
from bootstrap.validation import validate

#: What proxyHeaders inherits where a higher level leaves it out.
INHERITED_HEADERS: Final = (
    "forwardedClientCert",
    "requestId",
    "attemptCount",
    "server",
    "envoyDebugHeaders",
)


def merge(
    defaults: Mapping[str, object],
    texts: Mapping[str, str],
    *,
    mesh_config: str,
    service_cluster: str,
    warnings: list[str],
) -> tuple[Document, list[str]]:
    """Return the merged document without zero values, and every problem.

    Args:
        defaults: the lowest level.
        texts: the documents by the name that messages give them, lowest first.
        mesh_config: the name of the one that holds the proxy configuration in `defaultConfig`;
            it must be valid by itself.
        service_cluster: stands in for an empty `serviceCluster`.
        warnings: gains lines about what works but should be changed.
    """
    problems: list[str] = []
    document = dict(defaults)
    origins: dict[str, str] = {}
    for source, text in texts.items():
        overlay = _decode(text, source, problems, inside_mesh_config=source == mesh_config)
        overlay_onto(document, overlay)
        path = "defaultConfig." if source == mesh_config else ""
        origins.update(dict.fromkeys(overlay, f"{source}: {path}"))
        if source == mesh_config:
            problems += validate(_effective(document, service_cluster), origins)
    document = _effective(document, service_cluster)
    problems += [line for line in validate(document, origins) if line not in problems]
    metadata = document.get("proxyMetadata")
    if isinstance(metadata, dict) and "ISTIO_META_DNS_AUTO_ALLOCATE" in metadata:
        warnings.append(
            "proxyMetadata.ISTIO_META_DNS_AUTO_ALLOCATE is deprecated;"
            " the control plane allocates addresses by default"
        )
    return without_zeros(document, PROXY_CONFIG), problems


def overlay_onto(document: Document, overlay: Mapping[str, object]) -> None:
    """Replace the document's fields by those of a higher level."""
    for name, value in overlay.items():
        lower = document.get(name)
        if name in CLUSTER_NAME:
            for other in CLUSTER_NAME:
                document.pop(other, None)
        if isinstance(lower, dict) and isinstance(value, dict):
            if name == "proxyMetadata":
                document[name] = {**lower, **value}
                continue
            if name == "proxyHeaders":
                kept = {key: lower[key] for key in INHERITED_HEADERS if key in lower}
                document[name] = {**kept, **value}
                continue
        document[name] = value


def _decode(text: str, source: str, problems: list[str], *, inside_mesh_config: bool) -> Document:
    """Return the fields of one text, and note each problem with the text's name before it."""
    try:
        parsed = parse(text)
    except ValueError as error:
        problems.append(f"{source}: {error}")
        return {}
    if inside_mesh_config and isinstance(parsed, dict):
        parsed = parsed.get("defaultConfig", parsed.get("default_config"))
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        problems.append(f"{source}: expected an object, found {type(parsed).__name__}")
        return {}
    found: list[str] = []
    path = "defaultConfig" if inside_mesh_config else ""
    decoded = decode_fields(parsed, PROXY_CONFIG, (CLUSTER_NAME,), path, found)
    problems += [f"{source}: {line}" for line in found]
    return decoded


def _effective(document: Document, service_cluster: str) -> Document:
    if document.get("serviceCluster") == "":
        return {**document, "serviceCluster": service_cluster}
    return document
