"""One stream of a control plane that serves a snapshot."""

from typing import NamedTuple

import pytest
from envoy.service.discovery.v3 import discovery_pb2

from agent.xds.discovery import Kind, Resource
from agent.xds.resources import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET
from agent.xds.snapshot import Answer, ServedStream, Snapshot, make_snapshot

OTHER = "type.googleapis.com/envoy.service.runtime.v3.Runtime"


class Sent(NamedTuple):
    """A response as a client sees it."""

    type_url: str
    names: list[str]
    removed: list[str]
    nonce: str


def snapshot(version: str, *resources: tuple[str, str]) -> Snapshot:
    """Return resources whose content is their name; `name@2` is a second version of `name`."""
    return make_snapshot(
        version,
        (
            Resource(type_url, name.partition("@")[0], name, name.encode())
            for type_url, name in resources
        ),
    )


class Client:
    """Speaks Envoy's side by Envoy's own classes."""

    def __init__(self, kind: Kind, served: Snapshot | None) -> None:
        self.kind = kind
        self.stream = ServedStream(kind, served)

    def ask(
        self,
        type_url: str,
        *names: str,
        nonce: str = "",
        error: str | None = None,
        unsubscribe: tuple[str, ...] = (),
        versions: dict[str, str] | None = None,
    ) -> Answer | None:
        request: discovery_pb2.DiscoveryRequest | discovery_pb2.DeltaDiscoveryRequest
        if self.kind is Kind.SOTW:
            request = discovery_pb2.DiscoveryRequest(
                type_url=type_url, resource_names=names, response_nonce=nonce
            )
        else:
            request = discovery_pb2.DeltaDiscoveryRequest(
                type_url=type_url,
                resource_names_subscribe=names,
                resource_names_unsubscribe=unsubscribe,
                response_nonce=nonce,
                initial_resource_versions=versions or {},
            )
        if error is not None:
            request.error_detail.message = error
        return self.stream.receive_request(request.SerializeToString())

    def acknowledge(self, sent: Sent, *names: str) -> Answer | None:
        repeated = names if self.kind is Kind.SOTW else ()
        return self.ask(sent.type_url, *repeated, nonce=sent.nonce)

    def receive(self) -> list[Sent]:
        """Return every response that is due."""
        return [self._decoded(raw) for raw in iter(self.stream.next_response, None)]

    def _decoded(self, raw: bytes) -> Sent:
        if self.kind is Kind.SOTW:
            sotw = discovery_pb2.DiscoveryResponse.FromString(raw)
            names = [item.value.decode() for item in sotw.resources]
            return Sent(sotw.type_url, names, [], sotw.nonce)
        delta = discovery_pb2.DeltaDiscoveryResponse.FromString(raw)
        names = [item.resource.value.decode() for item in delta.resources]
        return Sent(delta.type_url, names, list(delta.removed_resources), delta.nonce)


@pytest.mark.parametrize("kind", Kind)
def test_a_first_request_without_names_gets_everything(kind: Kind) -> None:
    client = Client(kind, snapshot("1", (CLUSTER, "a"), (CLUSTER, "b"), (LISTENER, "c")))

    client.ask(CLUSTER)

    assert client.receive() == [Sent(CLUSTER, ["a", "b"], [], "1")]


@pytest.mark.parametrize("kind", Kind)
def test_a_first_request_is_answered_even_if_there_is_nothing(kind: Kind) -> None:
    """Envoy waits for clusters and listeners without end; none at all is an answer."""
    client = Client(kind, snapshot("1"))

    client.ask(LISTENER)

    assert client.receive() == [Sent(LISTENER, [], [], "1")]


@pytest.mark.parametrize("kind", Kind)
def test_without_a_snapshot_nothing_is_answered(kind: Kind) -> None:
    """X10: an error never looks like an empty set."""
    client = Client(kind, None)
    client.ask(CLUSTER)

    before = client.receive()
    client.stream.replace(snapshot("1", (CLUSTER, "a")))

    assert before == []
    assert client.receive() == [Sent(CLUSTER, ["a"], [], "1")]


@pytest.mark.parametrize("kind", Kind)
def test_nothing_is_said_of_a_type_of_which_nothing_is_known(kind: Kind) -> None:
    """X10: what is not in a part of the resources may well exist."""
    part = snapshot("1", (CLUSTER, "a"))._replace(is_whole=False)
    client = Client(kind, part._replace(resources={**part.resources, LISTENER: {}}))

    for type_url in (SECRET, CLUSTER, LISTENER):
        client.ask(type_url)

    assert client.receive() == [Sent(CLUSTER, ["a"], [], "1"), Sent(LISTENER, [], [], "2")]


@pytest.mark.parametrize("kind", Kind)
def test_an_answer_is_recognised_by_its_nonce(kind: Kind) -> None:
    client = Client(kind, snapshot("1", (CLUSTER, "a")))
    client.ask(CLUSTER)
    (sent,) = client.receive()

    assert client.ask(CLUSTER, nonce="other") is None
    assert client.ask(CLUSTER, nonce=sent.nonce, error="no") == Answer(CLUSTER, "no")
    assert client.acknowledge(sent) == Answer(CLUSTER, None)
    assert client.receive() == []


@pytest.mark.parametrize("kind", Kind)
def test_a_change_is_pushed_in_the_order_of_make_before_break(kind: Kind) -> None:
    held = [
        (OTHER, "o"),
        (SECRET, "s"),
        (ROUTE, "r"),
        (LISTENER, "l"),
        (ENDPOINT, "e"),
        (CLUSTER, "c"),
    ]
    client = Client(kind, snapshot("1", *held))
    for type_url, _ in held:
        client.ask(type_url)
    first = client.receive()

    client.stream.replace(snapshot("2", *((type_url, f"{name}@2") for type_url, name in held)))

    order = [CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, OTHER]
    assert [sent.type_url for sent in first] == order
    assert [sent.type_url for sent in client.receive()] == order


@pytest.mark.parametrize("kind", Kind)
def test_a_type_that_did_not_change_is_not_pushed(kind: Kind) -> None:
    client = Client(kind, snapshot("1", (CLUSTER, "a"), (LISTENER, "b")))
    client.ask(CLUSTER)
    client.ask(LISTENER)
    client.receive()

    client.stream.replace(snapshot("2", (CLUSTER, "a"), (LISTENER, "b@2")))

    assert [sent[:2] for sent in client.receive()] == [(LISTENER, ["b@2"])]


def test_delta_pushes_only_what_changed() -> None:
    client = Client(Kind.DELTA, snapshot("1", (LISTENER, "a"), (LISTENER, "b")))
    client.ask(LISTENER)
    client.receive()

    client.stream.replace(snapshot("2", (LISTENER, "a@2"), (LISTENER, "c")))

    assert client.receive() == [Sent(LISTENER, ["a@2", "c"], ["b"], "2")]


def test_sotw_pushes_the_whole_set() -> None:
    client = Client(Kind.SOTW, snapshot("1", (LISTENER, "a"), (LISTENER, "b")))
    client.ask(LISTENER)
    client.receive()

    client.stream.replace(snapshot("2", (LISTENER, "a"), (LISTENER, "c")))

    assert client.receive() == [Sent(LISTENER, ["a", "c"], [], "2")]


@pytest.mark.parametrize("kind", Kind)
def test_names_get_what_there_is_of_them(kind: Kind) -> None:
    client = Client(kind, snapshot("1", (ENDPOINT, "a"), (ENDPOINT, "b")))
    removed = ["x"] if kind is Kind.DELTA else []

    client.ask(ENDPOINT, "a", "x")
    first = client.receive()
    client.stream.replace(snapshot("2", (ENDPOINT, "a"), (ENDPOINT, "b@2")))
    second = client.receive()
    client.stream.replace(snapshot("3", (ENDPOINT, "a"), (ENDPOINT, "x")))
    third = client.receive()

    assert first == [Sent(ENDPOINT, ["a"], removed, "1")]
    assert second == []
    assert third == [Sent(ENDPOINT, ["a", "x"] if kind is Kind.SOTW else ["x"], [], "2")]


def test_sotw_answers_more_names_but_not_fewer() -> None:
    client = Client(Kind.SOTW, snapshot("1", (ROUTE, "a"), (ROUTE, "b")))
    client.ask(ROUTE, "a")
    (sent,) = client.receive()

    client.acknowledge(sent, "a", "b")
    (wider,) = client.receive()
    client.acknowledge(wider, "b")
    narrower = client.receive()
    client.acknowledge(wider)
    nothing = client.receive()

    assert wider.names == ["a", "b"]
    assert (narrower, nothing) == ([], [])


def test_sotw_names_with_a_stale_nonce_do_not_count() -> None:
    client = Client(Kind.SOTW, snapshot("1", (ROUTE, "a"), (ROUTE, "b")))
    client.ask(ROUTE, "a")
    client.receive()

    client.ask(ROUTE, "a", "b", nonce="old")

    assert client.receive() == []


def test_a_sotw_star_is_everything() -> None:
    client = Client(Kind.SOTW, snapshot("1", (ROUTE, "a"), (ROUTE, "b")))
    client.ask(ROUTE, "a")
    (sent,) = client.receive()

    client.acknowledge(sent, "*")

    assert [each.names for each in client.receive()] == [["a", "b"]]


def test_delta_subscriptions_grow_and_shrink() -> None:
    client = Client(Kind.DELTA, snapshot("1", (ROUTE, "a"), (ROUTE, "b")))
    client.ask(ROUTE, "a")
    client.receive()

    client.ask(ROUTE, "b")
    grown = client.receive()
    client.ask(ROUTE, unsubscribe=("a",))
    shrunk = client.receive()
    client.stream.replace(snapshot("2", (ROUTE, "a@2"), (ROUTE, "b@2")))
    changed = client.receive()
    client.ask(ROUTE, "b")
    asked_again = client.receive()

    assert [sent.names for sent in (*grown, *shrunk, *changed)] == [["b"], ["b@2"]]
    assert [sent.names for sent in asked_again] == [["b@2"]]


def test_delta_can_ask_for_everything_and_take_it_back() -> None:
    client = Client(Kind.DELTA, snapshot("1", (ROUTE, "a"), (ROUTE, "b")))
    client.ask(ROUTE, "a")
    client.receive()

    client.ask(ROUTE, "*")
    (everything,) = client.receive()
    client.ask(ROUTE, unsubscribe=("*",))
    client.stream.replace(snapshot("2", (ROUTE, "a@2"), (ROUTE, "b@2")))

    assert everything.names == ["b"]
    assert [sent.names for sent in client.receive()] == [["a@2"]]


def test_delta_after_a_reconnection_sends_what_is_missing() -> None:
    client = Client(Kind.DELTA, snapshot("1", (LISTENER, "a"), (LISTENER, "b@2")))

    client.ask(LISTENER, versions={"a": "a", "b": "b", "gone": "x"})

    assert client.receive() == [Sent(LISTENER, ["b@2"], ["gone"], "1")]


def settled(kind: Kind) -> Client:
    """Return a client that has accepted a cluster and a listener."""
    client = Client(kind, snapshot("1", (CLUSTER, "old"), (LISTENER, "l")))
    client.ask(CLUSTER)
    client.ask(LISTENER)
    for sent in client.receive():
        client.acknowledge(sent)
    return client


@pytest.mark.parametrize("kind", Kind)
def test_a_cluster_goes_once_the_listeners_that_name_it_have_gone(kind: Kind) -> None:
    client = settled(kind)
    whole = kind is Kind.SOTW

    client.stream.replace(snapshot("2", (CLUSTER, "new"), (LISTENER, "l@2")))
    cluster, listener = client.receive()
    client.acknowledge(cluster)
    early = client.receive()
    client.acknowledge(listener)
    (last,) = client.receive()

    assert cluster[:3] == (CLUSTER, ["old", "new"] if whole else ["new"], [])
    assert listener[:3] == (LISTENER, ["l@2"], [])
    assert early == []
    assert last[:3] == (CLUSTER, ["new"] if whole else [], [] if whole else ["old"])


@pytest.mark.parametrize("kind", Kind)
def test_a_cluster_stays_while_listeners_are_refused(kind: Kind) -> None:
    client = settled(kind)

    client.stream.replace(snapshot("2", (CLUSTER, "new"), (LISTENER, "l@2")))
    cluster, listener = client.receive()
    client.acknowledge(cluster)
    client.ask(LISTENER, nonce=listener.nonce, error="no")
    refused = client.receive()
    client.stream.replace(snapshot("3", (CLUSTER, "new"), (LISTENER, "l@3")))
    (better,) = client.receive()
    client.acknowledge(better)

    assert refused == []
    assert better[:2] == (LISTENER, ["l@3"])
    assert [sent.type_url for sent in client.receive()] == [CLUSTER]
