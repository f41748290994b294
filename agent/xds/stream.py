"""One ADS stream between Envoy and the control plane: what to do with each message.

Theory of operation. Envoy's requests all go upstream, unchanged and in order. The first one for
listeners is followed by the agent's own subscriptions, and by what was last found of the
application's health: by then the control plane has seen a node, and the agent's requests carry
none. Health is told again whenever it changes, and on each stream: the control plane may have
forgotten it. A response goes to Envoy, as it is or converted, or to a handler in the agent, which
then answers it in Envoy's place, or to nobody. Versions and nonces are never rewritten: each side
sees those of the other.

Source: xds-identity-dns.md sections 2.6 to 2.8 and 9.4, deviation D-9.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from agent.protobuf.wire import WireError
from agent.xds.discovery import (
    Kind,
    Request,
    Response,
    first_resource,
    read_request,
    read_response,
    write_request,
)
from agent.xds.resources import HEALTH, LISTENER, Destination, destination


class SendDownstream(NamedTuple):
    """Pass the response on to Envoy unchanged; this is only its head: it is not held twice."""

    response: Response


class SendUpstream(NamedTuple):
    """Send this message of the agent's own to the control plane."""

    message: bytes


class Convert(NamedTuple):
    """Pass the response on to Envoy once it was converted, if it can be."""

    response: Response


class Deliver(NamedTuple):
    """Give the resource to the agent's handler, then send what `AdsStream.answer` returns."""

    response: Response
    resource: bytes | None  #: none if the set is empty


class Drop(NamedTuple):
    """Do nothing but say so."""

    response: Response


Decision = SendDownstream | SendUpstream | Convert | Deliver | Drop


class Health(NamedTuple):
    """What was found of the application's health."""

    problem: str | None  #: none if it is healthy


class AdsStream:
    """The state of one stream: its kind, and whether the agent has said its own on it."""

    def __init__(
        self,
        kind: Kind,
        *,
        consumed: Collection[str] = (),
        converted: Collection[str] = (),
        subscribe: Sequence[str] = (),
        health: Health | None = None,
    ) -> None:
        """Make a stream.

        Args:
            kind: SotW or delta, the same on both sides.
            consumed: type URLs with a handler in the agent.
            converted: type URLs that are for Envoy, but not as they are.
            subscribe: type URLs that the agent asks for, in this order.
            health: what is known so far; none if nothing is, or the agent does not look.
        """
        self.kind = kind
        self._consumed = consumed
        self._converted = converted
        self._subscribe = tuple(subscribe)
        self._health = health
        self._has_begun = False  #: Envoy has asked for listeners

    def receive_request(self, raw: bytes) -> tuple[Request, tuple[SendUpstream, ...]]:
        """Return the head of Envoy's request, and what to send upstream once it was sent.

        Raises:
            WireError: the request cannot be read; the stream is of no use any more.
        """
        request = read_request(self.kind, raw)
        if request.type_url != LISTENER or self._has_begun:
            return request, ()
        self._has_begun = True
        own = [SendUpstream(write_request(self.kind, type_url)) for type_url in self._subscribe]
        return request, (*own, *self.report(self._health))

    def report(self, health: Health | None) -> tuple[SendUpstream, ...]:
        """Return what to send upstream of the application's health, nothing before its time."""
        self._health = health
        if health is None or not self._has_begun:
            return ()
        return (SendUpstream(write_request(self.kind, HEALTH, error=health.problem)),)

    def receive_response(self, raw: bytes) -> Decision:
        """Return what to do with a response of the control plane.

        Raises:
            WireError: the response cannot be read; the stream is of no use any more.
        """
        response = read_response(raw)
        receiver = destination(response.type_url, self._consumed)
        if receiver is Destination.ENVOY:
            is_converted = response.type_url in self._converted
            return Convert(response) if is_converted else SendDownstream(response)
        if receiver is Destination.NOBODY:
            return Drop(response)
        return self._consume(response, raw)

    def _consume(self, response: Response, raw: bytes) -> Decision:
        try:
            resource = first_resource(self.kind, raw)
        except WireError as error:
            return self.answer(response, str(error))
        if resource is None:
            return Deliver(response, None)
        type_url, body = resource
        if type_url != response.type_url:
            return self.answer(
                response, f"expected a resource of {response.type_url}, got {type_url!r}"
            )
        return Deliver(response, body)

    def answer(self, response: Response, error: str | None) -> SendUpstream:
        """Return the ACK of a consumed response, or its NACK with the handler's error."""
        return SendUpstream(
            write_request(
                self.kind,
                response.type_url,
                version=response.version,
                nonce=response.nonce,
                error=error,
            )
        )
