"""Whatever happens on the way, a client of either kind ends with what the snapshot holds."""

from collections.abc import Mapping
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2
from hypothesis import given
from hypothesis import strategies as st

from agent.xds.discovery import Kind, Resource
from agent.xds.resources import CLUSTER, LISTENER, ROUTE
from agent.xds.snapshot import ServedStream, Snapshot, make_snapshot

NAMES = ("a", "b", "c")
TYPES = (CLUSTER, LISTENER, ROUTE)

#: For each type and name a version, or nothing where there is no such resource.
CONTENT = st.fixed_dictionaries(
    {kind: st.dictionaries(st.sampled_from(NAMES), st.sampled_from("123")) for kind in TYPES}
)


def snapshot(content: Mapping[str, Mapping[str, str]]) -> Snapshot:
    return make_snapshot(
        "v",
        (
            Resource(type_url, name, version, f"{name}@{version}".encode())
            for type_url, by_name in content.items()
            for name, version in by_name.items()
        ),
    )


class Client:
    """Keeps what it is sent, as Envoy does: routes by name, the others as one set."""

    def __init__(self, kind: Kind, served: Snapshot) -> None:
        self.kind = kind
        self.stream = ServedStream(kind, served)
        self.held: dict[str, dict[str, str]] = {type_url: {} for type_url in TYPES}
        self.routes: list[str] = []
        self.nonces: dict[str, str] = {}
        for type_url in (CLUSTER, LISTENER):
            self.request(type_url)

    def request(self, type_url: str, **delta: Any) -> None:  # noqa: ANN401 - fields of the message
        nonce = self.nonces.get(type_url, "")
        names = self.routes if type_url == ROUTE else []
        if self.kind is Kind.SOTW:
            sotw = discovery_pb2.DiscoveryRequest(
                type_url=type_url, resource_names=names, response_nonce=nonce
            )
            raw = sotw.SerializeToString()
        else:
            # A change of subscription carries no nonce, an answer no change.
            answered = "" if delta else nonce
            changed = discovery_pb2.DeltaDiscoveryRequest(
                type_url=type_url, response_nonce=answered, **delta
            )
            raw = changed.SerializeToString()
        self.stream.receive_request(raw)

    def want(self, routes: list[str]) -> None:
        more = sorted(set(routes) - set(self.routes))
        fewer = sorted(set(self.routes) - set(routes))
        known = bool(self.routes) or ROUTE in self.nonces
        self.routes = routes
        self.held[ROUTE] = {n: v for n, v in self.held[ROUTE].items() if n in routes}
        if (more or fewer) and (known or routes):
            self.request(ROUTE, resource_names_subscribe=more, resource_names_unsubscribe=fewer)

    def take(self) -> None:
        """Take one response, if one is due, and accept it."""
        raw = self.stream.next_response()
        if raw is None:
            return
        if self.kind is Kind.SOTW:
            sotw = discovery_pb2.DiscoveryResponse.FromString(raw)
            type_url, nonce = sotw.type_url, sotw.nonce
            sent = dict(item.value.decode().split("@") for item in sotw.resources)
            self.held[type_url] = {**self.held[type_url], **sent} if type_url == ROUTE else sent
        else:
            delta = discovery_pb2.DeltaDiscoveryResponse.FromString(raw)
            type_url, nonce = delta.type_url, delta.nonce
            for item in delta.resources:
                self.held[type_url][item.name] = item.version
            for name in delta.removed_resources:
                self.held[type_url].pop(name, None)
        self.nonces[type_url] = nonce
        self.request(type_url)

    def settle(self) -> None:
        """Take all that is due; it must come to an end."""
        for _ in range(50):
            self.take()
        assert self.stream.next_response() is None


STEPS = st.lists(
    st.one_of(
        CONTENT,
        st.lists(st.sampled_from(NAMES), unique=True),
        st.none(),  # take one response
    ),
    max_size=8,
)


def play(kind: Kind, first: dict[str, dict[str, str]], steps: list[Any]) -> Client:
    client = Client(kind, snapshot(first))
    for step in steps:
        if step is None:
            client.take()
        elif isinstance(step, dict):
            client.stream.replace(snapshot(step))
        else:
            client.want(step)
    client.settle()
    return client


@given(CONTENT, STEPS)
def test_both_kinds_end_with_what_the_snapshot_holds(
    first: dict[str, dict[str, str]], steps: list[Any]
) -> None:
    contents = [first, *(step for step in steps if isinstance(step, dict))]
    latest = contents[-1]

    sotw, delta = (play(kind, first, steps) for kind in (Kind.SOTW, Kind.DELTA))

    for client in (sotw, delta):
        assert client.held[CLUSTER] == latest[CLUSTER]
        assert client.held[LISTENER] == latest[LISTENER]
    routes = {name: v for name, v in latest[ROUTE].items() if name in delta.routes}
    assert delta.held[ROUTE] == routes
    # In SotW a client is not told that a route it names is gone.
    assert {name: sotw.held[ROUTE].get(name) for name in routes} == routes
