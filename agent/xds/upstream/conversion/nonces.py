"""What Envoy has not seen of a type that is converted, and what it says meanwhile.

Theory of operation. A response that is being converted, or was refused, has a nonce that Envoy does
not know. Envoy answers what it got before with an older one, and so it says that it wants other
resources, in SotW. The control plane drops what carries an old nonce. With an answer it is right,
but the change would be lost until the next push: it gets the nonce of the last response.

In delta a change of subscription carries no nonce, and all is well.

Source: xds-identity-dns.md sections 2.6 and 2.8, deviation D-8.
"""

from collections.abc import Collection, MutableMapping

from agent.protobuf.edit import without
from agent.protobuf.wire import message
from agent.xds.discovery import (
    REQUEST,
    Kind,
    Request,
    Response,
    read_subscription,
    write_request,
)


class Withheld:
    """The converted types on one stream."""

    def __init__(
        self, kind: Kind, types: Collection[str], accepted: MutableMapping[str, str]
    ) -> None:
        """Begin a stream.

        Args:
            kind: SotW or delta.
            types: type URLs of what is converted.
            accepted: versions that Envoy has accepted on any stream, by type URL; kept up here.
        """
        self._kind = kind
        self._types = types
        self._accepted = accepted
        self._nonces: dict[str, str] = {}  #: of the last response that Envoy has not got
        self._names: dict[str, frozenset[str]] = {}  #: that Envoy wants

    def received(self, response: Response) -> None:
        """Take note of a response that Envoy has not got yet."""
        self._nonces[response.type_url] = response.nonce

    def passed_on(self, response: Response) -> None:
        """Take note that Envoy has got it."""
        if self._nonces.get(response.type_url) == response.nonce:
            del self._nonces[response.type_url]

    def refusal(self, response: Response, error: str) -> bytes:
        """Return the NACK of a response that Envoy will not get."""
        return write_request(
            self._kind,
            response.type_url,
            version=self._accepted.get(response.type_url, ""),
            nonce=response.nonce,
            error=error,
        )

    def readdressed(self, request: Request, raw: bytes) -> tuple[Request, bytes]:
        """Return Envoy's request as the control plane has to get it; nearly always the same.

        Raises:
            WireError: it cannot be read.
        """
        if self._kind is Kind.DELTA or request.type_url not in self._types:
            return request, raw
        if request.version:
            self._accepted[request.type_url] = request.version
        names = frozenset(read_subscription(self._kind, raw).names)
        has_changed = names != self._names.get(request.type_url)
        self._names[request.type_url] = names
        nonce = self._nonces.get(request.type_url)
        if not nonce or not has_changed or not request.nonce or request.error is not None:
            return request, raw
        number = REQUEST[self._kind].nonce
        return request._replace(nonce=nonce), without(raw, number) + message((number, nonce))
