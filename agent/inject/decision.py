"""Whether a pod is injected, and as what kind of sidecar.

Source: status-lifecycle.md sections 11.2 and 11.5.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from agent.inject.api.types import Object
from agent.inject.configuration import Configuration
from agent.inject.selectors import Selector

INJECT: Final = "sidecar.istio.io/inject"
NATIVE: Final = "sidecar.istio.io/nativeSidecar"
IGNORED_NAMESPACES: Final = frozenset(
    ("kube-system", "kube-public", "kube-node-lease", "local-path-storage")
)
#: Kubernetes runs restartable init containers by default from here on.
FIRST_NATIVE_MINOR: Final = 33
WINDOWS: Final = "windows"


class Verdict(NamedTuple):
    """Whether to inject."""

    inject: bool
    #: Why not, as the end of a sentence about the pod.
    reason: str = ""
    warnings: tuple[str, ...] = ()


def decide(pod: Object, namespace: str, configuration: Configuration) -> Verdict:
    """Return whether the pod, metadata and spec in the API's form, is to be injected."""
    metadata, spec = pod["metadata"], pod["spec"]
    labels: Mapping[str, str] = metadata.get("labels", {})
    if spec.get("hostNetwork"):
        return Verdict(inject=False, reason="has host networking enabled")
    if is_windows(spec):
        # The sidecar is a Linux container: the API server would refuse it, or no node could run it.
        return Verdict(inject=False, reason="is for Windows nodes")
    if namespace in IGNORED_NAMESPACES:
        return Verdict(inject=False, reason="has sidecar injection disabled")
    asked = labels.get(INJECT, metadata.get("annotations", {}).get(INJECT, ""))
    warnings: tuple[str, ...] = ()
    if asked not in ("true", "false", ""):
        warnings = (f"{INJECT}={asked!r}: expected 'true' or 'false'; it is ignored",)
    decided = asked == "true" if asked in ("true", "false") else None
    if decided is None:
        decided = _by_selectors(labels, configuration)
    if configuration.policy not in ("enabled", "disabled"):
        policy = f"policy={configuration.policy!r}"
        warnings += (f"{policy}: expected 'enabled' or 'disabled'; no pod is injected",)
        decided = False
    elif decided is None:
        decided = configuration.policy == "enabled"
    reason = "" if decided else "has sidecar injection disabled"
    return Verdict(decided, reason, warnings)


def _by_selectors(labels: Mapping[str, str], configuration: Configuration) -> bool | None:
    if _any_matches(configuration.never_inject, labels):
        return False
    return True if _any_matches(configuration.always_inject, labels) else None


def _any_matches(selectors: Iterable[Selector], labels: Mapping[str, str]) -> bool:
    return any(not selector.is_empty and selector.matches(labels) for selector in selectors)


def is_windows(spec: Object) -> bool:
    """Return whether the pod can only run on nodes with Windows."""
    system = spec.get("os") or {}
    nodes = spec.get("nodeSelector") or {}
    return WINDOWS in (system.get("name"), nodes.get("kubernetes.io/os"))


def native_sidecar(
    pod: Object, switch: str, kubelets: Mapping[str, str] | None
) -> tuple[bool, list[str]]:
    """Return whether the sidecar is a restartable init container, and warnings.

    Args:
        pod: its annotation wins, and its node is the one that matters if it has one already.
        switch: auto, true or false.
        kubelets: the kubelet's version by node; None where nobody could be asked.
    """
    asked = pod["metadata"].get("annotations", {}).get(NATIVE, "")
    if asked in ("true", "false"):
        return asked == "true", []
    warnings = []
    if asked:
        warnings.append(f"annotation {NATIVE}={asked!r}: expected 'true' or 'false'; it is ignored")
    if switch not in ("auto", "true", "false"):
        warnings.append(f"native sidecars={switch!r}: expected auto, true or false; using false")
    if switch == "auto" and kubelets is not None:
        node = pod["spec"].get("nodeName")
        versions = [kubelets[node]] if node in kubelets else list(kubelets.values())
        return _all_support(versions), warnings
    return switch == "true", warnings


def _all_support(versions: Sequence[str]) -> bool:
    minors = (re.match(r"v?1\.(\d{1,4})", version) for version in versions)
    return all(found and int(found[1]) >= FIRST_NATIVE_MINOR for found in minors)
