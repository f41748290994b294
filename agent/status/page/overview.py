"""All that the page shows, as one document: gathered from what the agent knows anyway.

Nothing in it costs more than a look into memory while the pod is ready; while it is not, Envoy is
asked why, as the kubelet's probe has it asked. What may be long is cut: the documents behind it
have all of it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from agent.masking import masked
from agent.status.outcomes import Outcome
from agent.status.probes import GrpcProbe, HttpProbe, Probe, TcpProbe

Document = dict[str, Any]  # JSON
#: Shown of a bundle, which may be a system's trust store.
CERTIFICATES: Final = 4
#: Of a node's id: type~ip~pod.namespace~domain.
NODE_PARTS: Final = 4


class Parts(NamedTuple):
    """What the page is made of."""

    time: float  #: now, in Unix seconds
    process: Document  #: of the agent itself
    readiness: Document
    #: What the parts of the agent say of themselves, by name; there need not be any.
    documents: Mapping[str, Callable[[], object]]
    probers: Mapping[str, Probe]
    outcomes: Mapping[str, Outcome]  #: of those probes that were run
    asked: Mapping[str, int]  #: requests to the status port, by kind
    dns_queries: float | None
    envoy: Document


def overview(parts: Parts) -> Document:
    """Return the document; None stands for a part that there is not. Times are Unix seconds."""
    passed = _told(parts, "passed") or {}
    return {
        "time": round(parts.time, 3),
        "agent": {**_pod(_told(parts, "pod")), **parts.process},
        "envoy": parts.envoy,
        "readiness": parts.readiness,
        "xds": _told(parts, "syncz"),
        "certificates": _brief(_told(parts, "certs")),
        "dns": _told(parts, "dns"),
        "probes": [
            _probe(path, probe, parts.outcomes.get(path)) for path, probe in parts.probers.items()
        ],
        "drain": _told(parts, "drain"),
        "activity": {
            "pushes": passed.get("responses"),
            "refused": passed.get("refused"),
            "xds_requests": passed.get("requests"),
            **parts.asked,
            "dns_queries": parts.dns_queries,
        },
    }


def _told(parts: Parts, name: str) -> Any:  # noqa: ANN401 -- JSON
    tell = parts.documents.get(name)
    return tell() if tell else None


def _pod(told: Document | None) -> Document:
    """Return who the pod is, out of Envoy's node; its names are empty where nobody has said."""
    node = str((told or {}).get("node", ""))
    kind, address, name, _ = [*node.split("~"), *[""] * NODE_PARTS][:NODE_PARTS]
    pod, _, namespace = name.rpartition(".")
    return {
        "pod": pod,
        "namespace": namespace,
        "kind": kind,
        "address": address,
        "version": (told or {}).get("version"),
    }


def _brief(certificates: Document | None) -> Document | None:
    """Return the same with a few of each bundle, the first to expire among them, and how many."""
    if certificates is None:
        return None
    bundle = certificates["trust_bundle"]
    return {
        **certificates,
        "trust_bundle": _first_to_expire(bundle),
        "trust_bundle_size": len(bundle),
        "files": [
            {
                **each,
                "certificates": _first_to_expire(each["certificates"]),
                "size": len(each["certificates"]),
            }
            for each in certificates["files"]
        ],
    }


def _first_to_expire(bundle: Sequence[Document]) -> list[Document]:
    return sorted(bundle, key=lambda each: each.get("not_after", 0.0))[:CERTIFICATES]


def _probe(path: str, probe: Probe, outcome: Outcome | None) -> Document:
    return {
        "path": path,
        "target": describe(probe),
        "timeout_seconds": probe.timeout_seconds,
        "last": outcome and {**outcome._asdict(), "success": outcome.is_success},
    }


def describe(probe: Probe) -> str:
    """Return what a probe does, such as 'HTTPS :8443 /ready'."""
    match probe:
        case HttpProbe():
            return f"{'HTTPS' if probe.is_tls else 'HTTP'} :{probe.port} {masked(probe.path)}"
        case TcpProbe():
            return f"TCP :{probe.port}"
        case GrpcProbe():
            return f"gRPC :{probe.port} {probe.service}".rstrip()
