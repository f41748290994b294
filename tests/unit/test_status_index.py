from agent.status.index import index
from agent.status.routes import EXACT, Route, find_route


def paths(*, profiling: bool) -> list[str]:
    return [line.split()[0] for line in index(profiling=profiling).splitlines()]


def test_every_debug_endpoint_is_listed_by_its_path() -> None:
    served = ["/" + "/".join(segments) for segments in EXACT if segments[0] == "debug"]

    assert paths(profiling=False) == sorted({*served} - {"/debug", "/debug/"})


def test_profiles_are_listed_where_they_are_served() -> None:
    assert "/debug/pprof/" in paths(profiling=True)
    assert all(
        isinstance(find_route(path, "", profiling=True), Route) for path in paths(profiling=True)
    )
