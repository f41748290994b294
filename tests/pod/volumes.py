"""What is in a pod's volumes, as values; writing them is the kubelet's."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from tests.pod.environment import Placed, common_user
from tests.pod.objects import Json

#: Config maps, and secrets, by namespace and name.
Store = Mapping[tuple[str, str], Mapping[str, str]]
DEFAULT_MODE: Final = 0o644
TOKEN_MODE: Final = 0o600
#: What the group of the volumes may: read, as everything here is the kubelet's to write.
GROUP_MODE: Final = 0o440


class File(NamedTuple):
    """A file of a volume."""

    text: str
    mode: int = DEFAULT_MODE
    uid: int = 0
    gid: int = 0


class Files(NamedTuple):
    """A volume of files that the kubelet writes; containers cannot."""

    files: Mapping[str, File]  #: by relative path


class Scratch(NamedTuple):
    """A volume that starts empty; here all of them are in memory, and of any size."""

    mode: int = 0o777
    gid: int = 0


class HostPath(NamedTuple):
    """A file or directory of the node."""

    path: str


Content = Files | Scratch | HostPath


class NotFoundError(Exception):
    """A volume needs an object that there is not: the pod waits for it."""


class Sources(NamedTuple):
    """What volumes are made of."""

    config_maps: Store
    secrets: Store
    #: Returns a token of the pod's service account for an audience.
    token: Callable[[Placed, str], str]


def content(volume: Json, placed: Placed, sources: Sources) -> Content:
    """Return what a volume holds.

    Raises:
        NotFoundError: an object is missing that is not optional.
    """
    kinds = [key for key in volume if key != "name"] or ["emptyDir"]  # the API server's default
    kind, source, group = kinds[0], volume.get(kinds[0], {}), placed.workload.fs_group
    if kind == "emptyDir":
        return Scratch() if group is None else Scratch(0o2777, group)
    if kind == "hostPath":
        return HostPath(source["path"])
    files = _MAKERS[kind](source, placed, sources)
    if group is not None:
        files = {k: f._replace(mode=f.mode | GROUP_MODE, gid=group) for k, f in files.items()}
    return Files(files)


def _config_map(source: Json, placed: Placed, sources: Sources) -> dict[str, File]:
    return _of_store(source, sources.config_maps, source["name"], placed)


def _secret(source: Json, placed: Placed, sources: Sources) -> dict[str, File]:
    # a volume's says secretName, a projected one's says name
    name = source.get("secretName") or source["name"]
    return _of_store(source, sources.secrets, name, placed)


def _of_store(source: Json, store: Store, name: str, placed: Placed) -> dict[str, File]:
    found = store.get((placed.workload.namespace, name))
    if found is None:
        if source.get("optional"):
            return {}
        raise NotFoundError(f"{placed.workload.namespace}/{name}")
    mode = source.get("defaultMode", DEFAULT_MODE)
    items = source.get("items") or [{"key": key, "path": key} for key in found]
    return {
        each["path"]: File(found[each["key"]], each.get("mode", mode))
        for each in items
        if each["key"] in found or not source.get("optional")
    }


def _downward(source: Json, placed: Placed, _: Sources) -> dict[str, File]:
    mode = source.get("defaultMode", DEFAULT_MODE)
    return {
        each["path"]: File(placed.field(each["fieldRef"]["fieldPath"]), each.get("mode", mode))
        for each in source["items"]
    }


def _token(source: Json, placed: Placed, sources: Sources) -> dict[str, File]:
    user = common_user(placed.workload.all_containers())
    is_shared = user is None and placed.workload.fs_group is None
    mode = source.get("defaultMode", DEFAULT_MODE) if is_shared else TOKEN_MODE
    text = sources.token(placed, source.get("audience", ""))
    return {source["path"]: File(text, mode, user or 0)}


def _projected(source: Json, placed: Placed, sources: Sources) -> dict[str, File]:
    found: dict[str, File] = {}
    mode = source.get("defaultMode", DEFAULT_MODE)
    for part in source["sources"]:
        for kind, each in part.items():
            found.update(_MAKERS[kind]({"defaultMode": mode, **each}, placed, sources))
    return found


_MAKERS: Final[Mapping[str, Callable[[Json, Placed, Sources], dict[str, File]]]] = {
    "configMap": _config_map,
    "secret": _secret,
    "downwardAPI": _downward,
    "projected": _projected,
    "serviceAccountToken": _token,
}


def nested(mounts: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield, of mounts (volume, path), each volume that another is mounted in, and where in it."""
    placed = sorted((path.rstrip("/"), volume) for volume, path in mounts)
    for path, _ in placed:
        outer = [(p, v) for p, v in placed if path.startswith(f"{p}/")]
        if outer:
            above, volume = outer[-1]
            yield volume, path.removeprefix(f"{above}/")
