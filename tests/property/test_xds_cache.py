"""What is kept is what Envoy holds, as far as it has accepted anything, whatever happens."""

import itertools
import tempfile
from pathlib import Path
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from hypothesis import given
from hypothesis import strategies as st

from agent.protobuf.wire import message
from agent.xds.cache.files import Store
from agent.xds.cache.ledger import Change, Ledger, Stage
from agent.xds.discovery import Kind, read_response
from agent.xds.resources import CLUSTER, ROUTE

#: All of the first are wanted, routes are named.
TYPES = (CLUSTER, ROUTE)
NAMES = ("a", "b")
Held = dict[str, bytes]
#: Where a pod has its volume, too: each push would wait for a disk.
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - for TemporaryDirectory


class Envoy:
    """Takes pushes as Envoy does, and says so; `kept` is what must be there for the next one."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.kept: dict[str, Held] = {}
        self.changes: list[Change] = []
        self._numbers = itertools.count(1)
        self._nonces = itertools.count(1)
        self._held: dict[str, Held] = {}
        self._wanted = set(NAMES)
        self._begin()

    def restart(self) -> None:
        """Lose everything."""
        self._held = {}
        self.reconnect()

    def reconnect(self) -> None:
        """Begin another stream with what it has."""
        self.changes += self._ledger.closed()
        self._begin()

    def push(self, type_url: str, content: dict[str, bytes | None]) -> None:
        """Send it resources that it wants; none for one that there is not any more."""
        if type_url == ROUTE:
            content = {name: body for name, body in content.items() if name in self._wanted}
        nonce = str(next(self._nonces))
        there = {name: body for name, body in content.items() if body is not None}
        gone = [name for name, body in content.items() if body is None]
        bodies = {name: AnyMessage(type_url=type_url, value=body) for name, body in there.items()}
        if self.kind is Kind.DELTA:
            resources = [
                discovery_pb2.Resource(name=name, version="1", resource=body)
                for name, body in bodies.items()
            ]
            delta = discovery_pb2.DeltaDiscoveryResponse(
                type_url=type_url, nonce=nonce, resources=resources, removed_resources=gone
            )
            raw = delta.SerializeToString()
        else:
            sotw = discovery_pb2.DiscoveryResponse(
                type_url=type_url, nonce=nonce, version_info=nonce, resources=bodies.values()
            )
            raw = sotw.SerializeToString()
            gone = []
        self.changes += self._ledger.responded(read_response(raw), raw)
        self._unanswered[type_url].append((nonce, there, gone))

    def answer(self, type_url: str, *, accepts: bool) -> None:
        """Have it answer the oldest push that it has not answered."""
        if not self._unanswered[type_url]:
            return
        nonce, there, gone = self._unanswered[type_url].pop(0)
        if accepts:
            self._accept(type_url, there, gone)
        self._request(type_url, nonce, error=not accepts)

    def has_unanswered(self, type_url: str) -> bool:
        return bool(self._unanswered[type_url])

    def want(self, names: set[str]) -> None:
        """Have it want these routes."""
        fewer = sorted(self._wanted - names)
        more = sorted(names - self._wanted)
        self._wanted = names
        if ROUTE in self._held:
            self._held[ROUTE] = {n: b for n, b in self._held[ROUTE].items() if n in names}
            self.kept[ROUTE] = self._held[ROUTE]
        if fewer or more:
            self._request(ROUTE, self._last.get(ROUTE, ""), subscribe=more, unsubscribe=fewer)

    def _accept(self, type_url: str, there: Held, gone: list[str]) -> None:
        if self.kind is Kind.SOTW and type_url == CLUSTER:
            held = dict(there)
        else:
            held = {**self._held.get(type_url, {}), **there}
            held = {name: body for name, body in held.items() if name not in gone}
        if self.kind is Kind.SOTW and type_url == ROUTE:
            held = {name: body for name, body in held.items() if name in self._wanted}
        self._held[type_url] = held
        self.kept[type_url] = held

    def _begin(self) -> None:
        self._ledger = Ledger(self.kind, self._numbers)
        self._last: dict[str, str] = {}
        self._unanswered: dict[str, list[tuple[str, Held, list[str]]]] = {t: [] for t in TYPES}
        for type_url in TYPES:
            versions = dict.fromkeys(self._held.get(type_url, {}), "1")
            self._request(type_url, "", versions=versions)

    def _request(self, type_url: str, nonce: str, *, error: bool = False, **delta: Any) -> None:  # noqa: ANN401 - fields of the message
        names = sorted(self._wanted) if type_url == ROUTE else []
        self._last[type_url] = nonce
        versions = delta.pop("versions", {})
        raw: bytes
        if self.kind is Kind.DELTA:
            request = discovery_pb2.DeltaDiscoveryRequest(
                type_url=type_url,
                # A change of subscription carries no nonce.
                response_nonce="" if delta else nonce,
                resource_names_subscribe=delta.get("subscribe", names if versions else []),
                resource_names_unsubscribe=delta.get("unsubscribe", []),
                initial_resource_versions=versions,
            )
            if error:
                request.error_detail.message = "no"
            raw = request.SerializeToString()
        else:
            sotw = discovery_pb2.DiscoveryRequest(
                type_url=type_url,
                response_nonce=nonce,
                resource_names=names,
                version_info="1" if type_url in self._held else "",
            )
            if error:
                sotw.error_detail.message = "no"
            raw = sotw.SerializeToString()
        self.changes += self._ledger.requested(raw)


def body(name: str, content: int) -> bytes:
    return message((1, name), (2, content))


CONTENT = st.dictionaries(st.sampled_from(NAMES), st.none() | st.integers(0, 1))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.sampled_from(TYPES), CONTENT),
        st.tuples(st.just("answer"), st.sampled_from(TYPES), st.booleans()),
        st.tuples(st.just("exchange"), st.sampled_from(TYPES), CONTENT),
        st.tuples(st.just("want"), st.sets(st.sampled_from(NAMES), min_size=1)),
        st.tuples(st.just("restart")),
        st.tuples(st.sampled_from(("reconnect", "keep"))),
    ),
    min_size=4,
    max_size=20,
)


def do(envoy: Envoy, store: Store, step: tuple[Any, ...]) -> None:
    match step:
        case ("push" | "exchange", type_url, content):
            made = {n: None if c is None else body(n, c) for n, c in content.items()}
            envoy.push(type_url, made)
            while step[0] == "exchange" and envoy.has_unanswered(type_url):
                envoy.answer(type_url, accepts=True)
        case ("answer", type_url, accepts):
            envoy.answer(type_url, accepts=accepts)
        case ("want", names):
            envoy.want(names)
        case ("restart",):
            envoy.restart()
        case ("reconnect",):
            envoy.reconnect()
        case _:
            store.apply(envoy.changes, 1.0)
            envoy.changes.clear()


def kept(store: Store) -> dict[str, Held]:
    found = store.load()
    if found is None:
        return {}
    return {
        type_url: {name: item.body for name, item in by_name.items()}
        for type_url, by_name in found.snapshot.resources.items()
    }


@given(st.sampled_from(Kind), STEPS)
def test_what_is_kept_is_what_envoy_holds(kind: Kind, steps: list[tuple[Any, ...]]) -> None:
    envoy = Envoy(kind)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        store = Store(directory, "node")
        for step in (*steps, ("keep",)):
            do(envoy, store, step)

        assert kept(store) == envoy.kept
        store.close()
        again = Store(directory, "node")
        assert kept(again) == envoy.kept
        again.close()


@given(st.sampled_from(Kind), st.binary(max_size=60))
def test_a_push_that_nobody_understands_is_never_served(kind: Kind, garbage: bytes) -> None:
    envoy = Envoy(kind)
    envoy.push(CLUSTER, {"a": body("a", 1)})
    envoy.answer(CLUSTER, accepts=True)
    envoy.push(CLUSTER, {"a": body("a", 2)})
    stage = envoy.changes.pop()
    assert isinstance(stage, Stage)
    envoy.changes.append(stage._replace(raw=stage.raw + garbage))
    envoy.answer(CLUSTER, accepts=True)
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        store = Store(directory, "node")

        store.apply(envoy.changes, 1.0)

        assert kept(store).get(CLUSTER, {}).get("a") != body("a", 1)
        store.close()
