"""Nodes of pods, from what a pod is made of."""

from collections.abc import Mapping

from bootstrap.config import DEFAULTS, from_document
from bootstrap.node import Node, NodeInputs, build_node

POD = {"POD_NAME": "v0", "POD_NAMESPACE": "default"}


def pod(environ: Mapping[str, str] = POD, document: Mapping[str, object] = DEFAULTS) -> NodeInputs:
    return NodeInputs("sidecar", "", environ, ["10.1.1.0"], from_document(document))


def node(inputs: NodeInputs) -> Node:
    found, warnings = build_node(inputs)
    assert not warnings
    return found


def metadata(inputs: NodeInputs) -> Mapping[str, object]:
    return node(inputs).metadata
