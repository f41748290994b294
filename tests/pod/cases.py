"""The pods that are run: the reference's injected ones, and ours, injected by `agent inject`."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
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
#: What a case is named after, of ours: the second pod is none.
OWN: Final = ("everything", "hold", "tproxy", "gateway", "work", "work-classic")
#: Of these, what the reference has nothing like.
OWN_ALONE: Final = ("everything", "hold", "work-classic")
#: Those of the reference that differ from the others most; the others run with a built image.
DISTINCT: Final = (
    "gateway",
    "hello",
    "hello-classic",
    "hello-cni",
    "hello-probes",
    "hello-tproxy",
    "job",
    "native-sidecar",
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


def reference() -> dict[str, Workload]:
    """Return the reference's injected pods by the names of their files; none if there are none."""
    found = {path.name.split(".")[0]: path for path in REFERENCE.glob("*.injected.yaml")}
    return {name: parse_manifests(path.read_text())[0] for name, path in sorted(found.items())}


def round_trips() -> Iterator[tuple[str, Workload]]:
    """Yield the reference's pods as we inject them."""
    for name, native in ROUND_TRIPS.items():
        path = REFERENCE / f"{name}.yaml"
        if path.exists():
            (made,) = inject([path], f"--native-sidecars={native}")
            yield f"{name}-injected", made


def all_cases() -> tuple[dict[str, Case], Workload]:
    """Return what is to be run by name, and the second pod of every proof.

    Without a built image only what differs most, to be quick: where the reference is there, that
    stands for what is like it of ours.
    """
    ours, found = own(), reference()
    chosen = {name: ours[name] for name in OWN}
    if os.environ.get("POD_IMAGE_ROOT"):
        chosen.update(found)
        chosen.update(round_trips())
    elif found:
        chosen = {name: ours[name] for name in OWN_ALONE}
        chosen.update({name: found[name] for name in DISTINCT})
    cases = (case(number, *each) for number, each in enumerate(chosen.items(), 1))
    return {each.name: each for each in cases}, ours["peer"]


def case(number: int, name: str, workload: Workload) -> Case:
    """Return a case with a service and an address of its own."""
    stem = name.removesuffix("-injected")
    service = Service(
        name,
        f"10.96.1.{number}",
        80,
        TARGETS.get(stem, 80),
        speaks_http=stem != "multi-container",
        is_plain=stem == "gateway",
    )
    wishes = Wishes(services=(name,))
    if workload.kind == "Job":
        ends = {"JOB_ENDS_SIDECAR": "1"} if name.endswith("classic") else {}
        wishes = wishes._replace(environ={"JOB_URL": f"http://{PEER.host}/", **ends})
    if stem == "traffic-annotations":  # captures ports 1 to 3, and nothing that is sent
        wishes = wishes._replace(ports={"traffic": {1: "http"}})
        return Case(name, workload, service, wishes, is_captured=False)
    return Case(name, workload, service, wishes)
