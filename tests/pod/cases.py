"""The pods that are run: the reference's injected ones, and ours, injected by `agent inject`."""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.pod.cluster import Wishes
from tests.pod.lives import PEER, Case
from tests.pod.mesh import Service
from tests.pod.objects import Workload, parse_workload

HERE: Final = Path(__file__).parent
#: Only a conformance run has it beside the tree.
REFERENCE: Final = HERE.parents[2] / "shared/data/injected-pods"
#: Of our manifests, what cases are named after: the second pod is none. Behind "-ip" are the
#: versions of IP that its pods have, if not IPv4 alone.
OWN: Final = (
    "hold",
    "gateway",
    "everything",
    "everything-ip6",
    "tproxy",
    "tproxy-ip64",
    "work",
    "work-classic",
)
#: Of these, what the reference has nothing like.
OWN_ALONE: Final = ("hold", "everything", "everything-ip6", "tproxy-ip64", "work-classic")
#: Those of the reference that differ from the others most; the others run with a built image.
#: The longest ones come first, here and above: two drains of 5 seconds.
DISTINCT: Final = (
    "gateway",
    "hello-classic",
    "hello",
    "hello-cni",
    "hello-probes",
    "job",
    "traffic-annotations",
)
#: Manifests of the reference that are also injected by us, native or not. (A hook after an
#: application's start, such as that of hello-probes, fails until an ordinary sidecar is there.)
ROUND_TRIPS: Final = {
    "gateway": "false",
    "hello": "true",
    "hello-probes": "true",
    "job": "true",
    "ready_live": "false",
}
INJECTED: Final = "-injected"
#: Ports that services mean, beside 80.
TARGETS: Final = {"multi-container": 123, "traffic-annotations": 1, "everything": 8080}


def parse_manifests(text: str) -> list[Workload]:
    """Return the pods of a multi-document manifest."""
    found: list[Mapping[str, Any]] = [each for each in yaml.safe_load_all(text) if each]
    return [parse_workload(each) for each in found]


def inject(paths: Iterable[Path], *flags: str) -> list[Workload]:
    """Return the pods of manifests as `agent inject` writes them."""
    files = (word for path in paths for word in ("-f", str(path)))
    argv = [sys.executable, "-m", "agent", "inject", *files, *flags]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stderr
    return parse_manifests(done.stdout)


def own() -> dict[str, Workload]:
    """Return our pods, injected, by name."""
    return {each.name: each for each in inject(sorted((HERE / "manifests").glob("*.yaml")))}


def chosen() -> list[str]:
    """Return the names of what is to be run.

    Without a built image only what differs most, to be quick: where the reference is there, that
    stands for what is like it of ours.
    """
    files = sorted(path.name.partition(".")[0] for path in REFERENCE.glob("*.injected.yaml"))
    if not files:
        return list(OWN)
    if os.environ.get("POD_IMAGE_ROOT"):
        own_names = [name for name in OWN if name not in files]
        return [*own_names, *files, *(f"{name}{INJECTED}" for name in ROUND_TRIPS)]
    return [*OWN_ALONE, *DISTINCT]


def split(name: str) -> tuple[str, str]:
    """Return what a case is named after, and the versions of IP that its pods have."""
    stem, _, suffix = name.removesuffix(INJECTED).rpartition("-ip")
    return (stem, suffix) if stem else (suffix, "4")


def is_job(name: str) -> bool:
    """Return whether a case is one of work that ends."""
    return name.startswith(("job", "work"))


def is_gateway(name: str) -> bool:
    """Return whether a case is one of an Envoy without an application."""
    return name.startswith("gateway")


def make_cases(names: Iterable[str]) -> tuple[dict[str, Case], Workload]:
    """Return cases by name, and the second pod of every proof."""
    ours = own()
    found = {}
    for number, name in enumerate(names, 1):
        stem = name.removesuffix(INJECTED)
        file = REFERENCE / f"{name}.injected.yaml"
        if stem != name:
            flag = f"--native-sidecars={ROUND_TRIPS[stem]}"
            (workload,) = inject([REFERENCE / f"{stem}.yaml"], flag)
        elif file.exists():
            workload = parse_manifests(file.read_text())[0]
        else:
            workload = ours[split(name)[0]]
        found[name] = case(number, name, workload)
    return found, ours["peer"]


def case(number: int, name: str, workload: Workload) -> Case:
    """Return a case with a service and an address of its own."""
    stem, versions = split(name)
    service = Service(
        name,
        f"10.96.1.{number}",
        80,
        TARGETS.get(stem, 80),
        speaks_http=stem != "multi-container",
        is_plain=is_gateway(name),
        versions=versions,
    )
    wishes = Wishes(services=(name,), versions=versions)
    if is_job(name):
        ends = {"JOB_ENDS_SIDECAR": "1"} if name.endswith("classic") else {}
        wishes = wishes._replace(environ={"JOB_URL": f"http://{PEER.host}/", **ends})
    if stem == "traffic-annotations":  # captures ports 1 to 3, and nothing that is sent
        wishes = wishes._replace(ports={"traffic": {1: "http"}})
        return Case(name, workload, service, wishes, is_captured=False)
    return Case(name, workload, service, wishes)
