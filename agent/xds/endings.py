"""How a stream ended: what Envoy is told, and which counter says so.

Source: xds-identity-dns.md sections 2.9 and 2.10. The texts of gRPC's C core were seen with
grpcio 1.85.
"""

from typing import Final, NamedTuple

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
DEADLINE_EXCEEDED: Final = 4
RESOURCE_EXHAUSTED: Final = 8
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16

ISTIOD: Final = "istiod_connection_terminations"
ENVOY: Final = "envoy_connection_terminations"
NO_CHANNEL: Final = "istiod_connection_failures"

#: The peer closed the connection in good order.
CLOSED_TEXTS: Final = (
    "Socket closed",
    "GOAWAY received; Error code: 0",
    "client disconnected",
    "error reading from server: EOF",
    "transport is closing",
)
#: Why the peer closed it, where it was something else; gRPC then says `Socket closed`, too.
GOAWAY_TEXT: Final = "GOAWAY received; Error code: "
#: There was no connection: a proxy or a load balancer that closes it at once looks like the above.
NOT_CONNECTED_TEXT: Final = "failed to connect to all addresses"
NO_ERROR_TEXTS: Final = (
    "Received RST_STREAM with error code 0",
    "stream terminated by RST_STREAM with error code: NO_ERROR",
    "received prior goaway: code: NO_ERROR",
)


class Ending(NamedTuple):
    """The end of one stream."""

    code: int  #: gRPC status for Envoy
    details: str
    counter: str = ""  #: none if empty
    kind: str = ""  #: the counter's label `type`: `cancelled` or `error`


#: A newer stream took over: the older client sees success.
REPLACED: Final = Ending(OK, "")
#: From the cache to the control plane, by way of Envoy.
HANDED_OVER: Final = Ending(OK, "control plane can be reached again")
SHUT_DOWN: Final = Ending(UNAVAILABLE, "agent is shutting down")
#: Envoy half-closed, or its connection went away.
ENVOY_LEFT: Final = Ending(OK, "", ENVOY, "cancelled")


def upstream_ended(code: int, details: str) -> Ending:
    """Return the ending for a status of the control plane's stream; Envoy sees the same status."""
    kind = "cancelled" if code == OK or is_expected(code, details) else "error"
    return Ending(code, details, ISTIOD, kind)


def channel_failed(error: str) -> Ending:
    """Return the ending if there is not even a channel to the control plane."""
    return Ending(UNAVAILABLE, f"no channel to the control plane: {error}", NO_CHANNEL)


def no_token(error: str) -> Ending:
    """Return the ending if whoever makes the token does not."""
    return Ending(UNAUTHENTICATED, error, NO_CHANNEL)


def is_expected(code: int, details: str) -> bool:
    """Return whether such an end is part of ordinary life, such as a maximum connection age."""
    if code in (CANCELLED, DEADLINE_EXCEEDED):
        return True
    if NOT_CONNECTED_TEXT in details or _has_failed(details):
        return False
    if code == UNAVAILABLE and any(part in details for part in CLOSED_TEXTS):
        return True
    return any(part in details for part in NO_ERROR_TEXTS)


def _has_failed(details: str) -> bool:
    """Return whether the peer has said that it closes the connection for an error."""
    _, goaway, error_code = details.partition(GOAWAY_TEXT)
    return bool(goaway) and not error_code.startswith("0")


def unreadable(who: str, error: str) -> Ending:
    """Return the ending after a message that is no discovery message."""
    counter = ENVOY if who == "Envoy" else ISTIOD
    return Ending(INTERNAL, f"message from {who} cannot be read: {error}", counter, "error")


def too_long(size: int, limit_bytes: int) -> Ending:
    """Return the ending after a message of Envoy's that is longer than allowed."""
    details = (
        f"message from Envoy has {size} bytes, more than ISTIO_GPRC_MAXRECVMSGSIZE={limit_bytes}; "
        "raise it"
    )
    return Ending(RESOURCE_EXHAUSTED, details, ENVOY, "error")


def downstream_write_failed(type_url: str, cause: str) -> Ending:
    """Return the ending after a response that Envoy did not take."""
    return Ending(UNKNOWN, f"send error for type url {type_url}: {cause}", ENVOY, "error")


def backlog_too_long(limit_bytes: int) -> Ending:
    """Return the ending once too much waits for a control plane that does not read (D-20)."""
    details = f"control plane does not read: more than {limit_bytes} bytes of requests wait"
    return Ending(RESOURCE_EXHAUSTED, details, ISTIOD, "error")


def not_read(limit_seconds: float) -> Ending:
    """Return the ending once a request waits for a control plane that does not read (X6)."""
    details = f"control plane does not read: a request has waited for {limit_seconds:g}s"
    return Ending(UNAVAILABLE, details, ISTIOD, "error")


def silent(limit_seconds: float) -> Ending:
    """Return the ending of a stream on which nothing has come for as long as the user allows."""
    details = f"control plane has sent nothing for {limit_seconds:g}s (AGENT_XDS_MAX_SILENCE)"
    return Ending(UNAVAILABLE, details, ISTIOD, "error")
