"""The application's probes: who answers them once the pod is captured.

The kubelet's probes would meet the proxy, or its mTLS. So each one is sent to the agent instead,
which has a table that says what to ask the application.

Source: status-lifecycle.md section 10.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from agent.inject.api.form import shown
from agent.inject.api.types import Object
from agent.inject.template.pod import PROXY
from agent.inject.text import compact_json

REWRITE: Final = "sidecar.istio.io/rewriteAppHTTPProbers"
VARIABLE: Final = "ISTIO_KUBE_APP_PROBERS"
PROBES: Final = {"readinessProbe": "readyz", "livenessProbe": "livez", "startupProbe": "startupz"}
HOOKS: Final = {"preStop": "prestopz", "postStart": "poststartz"}
KINDS: Final = ("httpGet", "tcpSocket", "grpc")
MAX_PORT: Final = 65535


class Rewrite(NamedTuple):
    """A probe or hook that asks over the network."""

    #: Its path on the agent.
    key: str
    #: The object with the handler, which is changed in place.
    holder: Object
    kind: str
    #: For messages.
    path: str
    container: Object
    timeout_seconds: int

    @property
    def handler(self) -> Object:
        """Return what is asked."""
        handler: Object = self.holder[self.kind]
        return handler


def rewrite_probes(
    spec: Object, proxy: Object, *, status_port: int, mesh_status_port: int, again: bool
) -> list[str]:
    """Send probes and hooks to the agent, and give it the table; return warnings.

    A probe whose port cannot be told is left as it is (D10).

    Args:
        spec: of the merged pod, in the API's form; changed in place.
        proxy: the agent's container.
        status_port: the agent's.
        mesh_status_port: that of the mesh; probes that ask it have been rewritten before.
        again: the pod was injected before; entries of its table stay.
    """
    warnings: list[str] = []
    table: Object = {}
    rewrites = list(find_probes(spec))
    if rewrites and not status_port:
        return ["probes are not rewritten: the agent's status port is 0, nobody would answer"]
    for rewrite in rewrites:
        handler = _resolved(rewrite)
        if handler is None:
            port = shown(rewrite.handler.get("port", 0))
            warnings.append(
                f"{rewrite.path}.{rewrite.kind}.port={port}: expected a port in 1..{MAX_PORT} or "
                "the name of one that the container declares; the probe is left as it is"
            )
            continue
        if not _is_rewritten(rewrite, handler, status_port, mesh_status_port):
            timeout = rewrite.timeout_seconds
            table[rewrite.key] = {
                rewrite.kind: handler,
                **({"timeoutSeconds": timeout} if timeout else {}),
            }
        _redirect(rewrite, status_port)
    return warnings + _add_table(proxy, dict(sorted(table.items())), again=again)


def find_probes(spec: Object) -> Iterator[Rewrite]:
    """Yield the probes and hooks of applications that ask over the network."""
    for group in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(group, ())):
            if container.get("name") != PROXY:
                yield from _of_container(container, f"spec.{group}[{index}]")


def _of_container(container: Object, path: str) -> Iterator[Rewrite]:
    name = container.get("name", "")
    for field, suffix in PROBES.items():
        probe = container.get(field, {})
        if kind := _kind(probe):
            timeout = probe.get("timeoutSeconds", 0)
            key = f"/app-health/{name}/{suffix}"
            yield Rewrite(key, probe, kind, f"{path}.{field}", container, timeout)
    for field, suffix in HOOKS.items():
        hook = container.get("lifecycle", {}).get(field, {})
        kind = _kind(hook)
        if kind and kind != "grpc":
            key = f"/app-lifecycle/{name}/{suffix}"
            yield Rewrite(key, hook, kind, f"{path}.lifecycle.{field}", container, 0)


def _kind(holder: Mapping[str, object]) -> str:
    return next((kind for kind in KINDS if kind in holder), "")


def _resolved(rewrite: Rewrite) -> Object | None:
    """Return the handler as the agent's table has it, None where its port cannot be told."""
    handler = rewrite.handler
    port = handler.get("port", 0)
    if isinstance(port, str):
        ports = rewrite.container.get("ports", ())
        named = (item.get("containerPort", 0) for item in ports if item.get("name") == port)
        port = next(named, 0)
    if not 0 < port <= MAX_PORT:
        return None
    if rewrite.kind == "grpc":
        return {"port": port, "service": handler.get("service")}
    return {
        **({"path": handler["path"]} if "path" in handler else {}),
        "port": port,
        **{name: handler[name] for name in ("host", "scheme", "httpHeaders") if name in handler},
    }


def _is_rewritten(
    rewrite: Rewrite, handler: Object, status_port: int, mesh_status_port: int
) -> bool:
    """Return whether the agent is asked already, so that it must not be told to ask itself.

    Where a pod moves the agent to another port, the mesh's may be the application's.
    """
    if rewrite.kind == "httpGet" and handler.get("path") == rewrite.key:
        return True
    asks_agent = handler["port"] == status_port == mesh_status_port
    return rewrite.kind != "grpc" and asks_agent


def _redirect(rewrite: Rewrite, port: int) -> None:
    """Have the kubelet ask the agent. A host would lead it elsewhere (D11)."""
    asked: Object = {"path": rewrite.key, "port": port}
    if rewrite.kind == "httpGet":
        if scheme := rewrite.handler.get("scheme"):
            asked["scheme"] = "HTTP" if scheme == "HTTPS" else scheme
        if headers := rewrite.handler.get("httpHeaders"):
            asked["httpHeaders"] = headers
    del rewrite.holder[rewrite.kind]
    rewrite.holder["httpGet"] = asked


def _add_table(proxy: Object, table: Object, *, again: bool) -> list[str]:
    """Give the agent the table; return warnings."""
    if not table:
        return []
    environment: list[Object] = proxy.setdefault("env", [])
    present = [item for item in environment if item.get("name") == VARIABLE] if again else []
    if not present:
        environment.append({"name": VARIABLE, "value": compact_json(table)})
        return []
    try:
        existing = json.loads(present[0].get("value", ""))
        merged = {**table, **existing}
    except (ValueError, TypeError, RecursionError):
        return [f"{VARIABLE}: expected a JSON object; it is left as it is"]
    present[0]["value"] = compact_json(dict(sorted(merged.items())))
    return []
