"""A container's environment, command and files, as a kubelet makes them of a pod."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from tests.pod.objects import Container, Json, Workload

SUFFIXES: Final[Mapping[str, int]] = {
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
}
#: `$(NAME)`, or `$$`, which stands for one `$`.
REFERENCE: Final = re.compile(r"\$\$|\$\(([^)]*)\)")
#: Added to every container, for the API server's service.
SERVICE_LINKS: Final = {
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "KUBERNETES_SERVICE_PORT": "443",
    "KUBERNETES_PORT": "tcp://10.96.0.1:443",
}
SEARCH: Final = ("svc.cluster.local", "cluster.local")


class Placed(NamedTuple):
    """A pod on its node."""

    name: str
    uid: str
    workload: Workload
    ip: str
    node_name: str
    node_ip: str
    node_resources: Mapping[str, str]  #: cpu and memory, as quantities
    #: Where the pod is dual-stack, those of the other family.
    other_ip: str = ""
    other_node_ip: str = ""

    @property
    def ips(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.ip, self.other_ip)))

    def field(self, path: str) -> str:
        """Return what a fieldRef refers to.

        Raises:
            KeyError: a kubelet would refuse the pod.
        """
        workload = self.workload
        key = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
        if key:
            values = workload.labels if key[1] == "labels" else workload.annotations
            return values.get(key[2], "")
        return {
            "metadata.name": self.name,
            "metadata.namespace": workload.namespace,
            "metadata.uid": self.uid,
            "metadata.labels": format_map(workload.labels),
            "metadata.annotations": format_map(workload.annotations),
            "spec.nodeName": self.node_name,
            "spec.serviceAccountName": workload.service_account,
            "status.podIP": self.ip,
            "status.podIPs": ",".join(self.ips),
            "status.hostIP": self.node_ip,
            "status.hostIPs": ",".join(filter(None, (self.node_ip, self.other_node_ip))),
        }[path]

    def resource(self, container: Container, reference: Json) -> str:
        """Return what a resourceFieldRef refers to.

        A limit that is not set is the node's; a request that is not, the limit.
        """
        which, _, name = reference["resource"].partition(".")
        limit = container.resources.get("limits", {}).get(name)
        fallback = (limit or self.node_resources[name]) if which == "limits" else (limit or "0")
        found = str(container.resources.get(which, {}).get(name, fallback))
        return str(math.ceil(quantity(found) / quantity(str(reference.get("divisor", "1")))))


def quantity(text: str) -> Fraction:
    """Return the value of a quantity such as `100m` or `1Gi`."""
    if text.endswith("m"):
        return Fraction(text.removesuffix("m")) / 1000
    for suffix, factor in SUFFIXES.items():
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * factor
    return Fraction(text)


def format_map(values: Mapping[str, str]) -> str:
    """Return labels or annotations as the downward API shows them: key="value" lines, sorted."""
    quoted = (f'{key}="{escape(value)}"' for key, value in sorted(values.items()))
    return "\n".join(quoted)


def escape(value: str) -> str:
    """Return a text as Go's %q writes it between the quotes; not printable ASCII is rare here."""
    return "".join(
        {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(each, each)
        for each in value
    )


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Return a text with its references to variables replaced; unknown ones stay."""
    return REFERENCE.sub(
        lambda found: "$" if found[0] == "$$" else environ.get(found[1], found[0]), text
    )


def variables(placed: Placed, container: Container) -> dict[str, str]:
    """Return what a manifest gives a container; a later variable may refer to those before it.

    Those of its image are the runtime's to add: no reference finds them.

    Raises:
        KeyError: what one refers to there is not here, such as a config map.
    """
    environ = dict(SERVICE_LINKS)
    for variable in container.env:
        source = variable.get("valueFrom")
        if not source:
            value = expand(variable.get("value", ""), environ)
        elif "fieldRef" in source:
            value = placed.field(source["fieldRef"]["fieldPath"])
        else:
            value = placed.resource(container, source["resourceFieldRef"])
        environ[variable["name"]] = value
    return environ


def command(
    container: Container, entrypoint: Sequence[str], environ: Mapping[str, str]
) -> list[str]:
    """Return what is executed: `command` stands for the image's entrypoint, `args` come behind."""
    words = (*(container.command or entrypoint), *container.args)
    return [expand(word, environ) for word in words]


def hosts(placed: Placed) -> str:
    """Return the text of /etc/hosts."""
    lines = (
        "# Kubernetes-managed hosts file.",
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        "fe00::0\tip6-localnet",
        "fe00::0\tip6-mcastprefix",
        "fe00::1\tip6-allnodes",
        "fe00::2\tip6-allrouters",
        *(f"{ip}\t{placed.name}" for ip in placed.ips),
    )
    return "\n".join(lines) + "\n"


def resolv_conf(placed: Placed, nameserver: str) -> str:
    """Return the text of /etc/resolv.conf, by the policy ClusterFirst."""
    search = " ".join((f"{placed.workload.namespace}.{SEARCH[0]}", *SEARCH))
    return f"search {search}\nnameserver {nameserver}\noptions ndots:5\n"


def common_user(containers: Iterable[Container]) -> int | None:
    """Return the user of all containers; None if they are not all told the same one."""
    found = {each.security.uid for each in containers}
    return found.pop() if len(found) == 1 else None
