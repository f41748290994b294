"""Streams and pushes as JSON has them; times are Unix seconds.

Source: xds-identity-dns.md section 2.13 for the manner of it, a document on the status port.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from agent.xds.discovery import Kind
from agent.xds.resources import ABBREVIATIONS
from agent.xds.sync import Answer, Push, SyncTable, TypeState

#: Named of what a push adds, changes or removes; all are counted.
NAMES: Final = 20
#: Of each: a watcher that is slow has hundreds of lines waiting.
NAME_CHARACTERS: Final = 256
KINDS: Final = {Kind.SOTW: "sotw", Kind.DELTA: "delta"}

Document = dict[str, Any]  # JSON


class Stream(NamedTuple):
    """A stream of Envoy."""

    number: int  #: the first one has 1
    kind: Kind
    node: str  #: Envoy's node id; empty until it is known
    since: float
    table: SyncTable


def document(connection: Document, sessions: int, stream: Stream | None, epoch: float) -> Document:
    """Return what is known of Envoy's stream, and of each type on it.

    Args:
        connection: who answers Envoy, and whether it does.
        sessions: how many streams there were, this one included.
        stream: none if there is none now.
        epoch: Unix seconds at the beginning of monotonic time.
    """
    types = stream.table.types if stream else {}
    return {
        "connection": {
            **connection,
            "sessions": sessions,
            "stream": stream and _stream(stream),
        },
        "types": {
            ABBREVIATIONS.get(type_url, type_url): _type(type_url, state, epoch)
            for type_url, state in types.items()
        },
    }


def _stream(stream: Stream) -> Document:
    table = stream.table
    return {
        "number": stream.number,
        "kind": KINDS[stream.kind],
        "node": stream.node or None,
        "since": round(stream.since, 3),
        "requests": table.requests,
        "request_bytes": table.request_bytes,
        "responses": table.responses,
        "response_bytes": table.response_bytes,
    }


def _type(type_url: str, state: TypeState, epoch: float) -> Document:
    answer, accepted, refused = state.answer(), state.accepted, state.refused
    return {
        "type_url": type_url,
        "state": state.name(),
        "subscribed": _when(state.subscribed, epoch),
        "sent": state.push and _push(state.push, epoch),
        "answered": _when(answer and answer.at, epoch),
        "milliseconds": _milliseconds(answer),
        "acknowledged": accepted and _push(accepted.push, epoch),
        "last_nack": refused
        and {
            **_push(refused.push, epoch),
            "answered": _when(refused.at, epoch),
            "error": refused.error,
        },
    }


def _push(push: Push, epoch: float) -> Document:
    return {
        "time": _when(push.at, epoch),
        "version": push.version,
        "nonce": push.nonce,
        "resources": push.resources,
        "bytes": push.size,
    }


def pushed(push: Push, answer: Answer | None, epoch: float) -> Document:
    """Return a push and what became of it, for whoever watches; no answer will not come any more.

    What a push changes is null where nobody watched when it came.
    """
    result = "unanswered" if answer is None else "ACK" if answer.error is None else "NACK"
    groups = push.change._asdict() if push.change else {}
    return {
        "type": ABBREVIATIONS.get(push.type_url, push.type_url),
        **_push(push, epoch),
        "result": result,
        "milliseconds": _milliseconds(answer),
        "error": answer and answer.error,
        "change": push.change and {group: len(names) for group, names in groups.items()},
        "names": {group: _some(names) for group, names in groups.items() if names},
    }


def _some(names: Sequence[str]) -> list[str]:
    return [name[:NAME_CHARACTERS] for name in names[:NAMES]]


def _when(at: float | None, epoch: float) -> float | None:
    return None if at is None else round(at + epoch, 3)


def _milliseconds(answer: Answer | None) -> float | None:
    return answer and round(answer.seconds * 1000, 1)
