"""What of one stream's pushes was acknowledged: istioctl's proxy-status, told by the proxy.

Theory of operation. A push waits for an answer, which names its nonce. Answers come in the order of
pushes: whoever answers a later one will not come back to those before it. An answer uses its nonce
up: in SotW a change of a subscription carries the nonce of the last response, even of a refused
one, and says nothing of it. Any other nonce is one that a later push has replaced.

Times are monotonic seconds. Source: xds-identity-dns.md sections 2.8, 2.14 and 10.4.
"""

import itertools
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from agent.xds.discovery import Request, Response
from agent.xds.resources import HEALTH

if TYPE_CHECKING:
    from agent.xds.inventory import Change

T = TypeVar("T")

SYNCED: Final = "SYNCED"
NOT_SENT: Final = "NOT SENT"
STALE: Final = "STALE"
#: Kept of what is said against a push: Envoy lists every resource that it refuses.
ERROR_CHARACTERS: Final = 4096
#: Pushes of a type that may wait for an answer; the oldest is forgotten.
WAITING: Final = 64
#: Far more than there are; a control plane may push what nobody asks for.
TYPES: Final = 256


class Push(NamedTuple):
    """A response."""

    type_url: str
    version: str
    nonce: str
    resources: int  #: how many
    size: int  #: in bytes
    at: float
    change: "Change | None" = None  #: known only while somebody watches


class Answer(NamedTuple):
    """An ACK or, with an error, a NACK."""

    push: Push
    at: float
    error: str | None
    passed_over: tuple[Push, ...] = ()  #: earlier ones, which will not be answered any more

    @property
    def seconds(self) -> float:
        """Return the time from the push to its answer."""
        return self.at - self.push.at


class Expired(NamedTuple):
    """A request about a push that a later one has replaced."""

    type_url: str


class TypeState:
    """What passed of one type."""

    __slots__ = ("accepted", "push", "refused", "subscribed", "waiting")

    def __init__(self) -> None:
        self.subscribed: float | None = None  #: when it was last asked for
        self.push: Push | None = None  #: the latest
        self.accepted: Answer | None = None  #: the latest ACK
        self.refused: Answer | None = None  #: the latest NACK
        self.waiting: dict[str, Push] = {}  #: by nonce, oldest first

    def name(self) -> str:
        """Return the state in the words of istioctl."""
        if self.push is None:
            return NOT_SENT
        answer = self.accepted
        return SYNCED if answer is not None and answer.push is self.push else STALE

    def answer(self) -> Answer | None:
        """Return what was said to the latest push, if anything."""
        answers = (self.accepted, self.refused)
        return next((each for each in answers if each and each.push is self.push), None)


class SyncTable:
    """One stream: what passed, and what of it was acknowledged."""

    def __init__(self) -> None:
        self.requests = self.request_bytes = 0
        self.responses = self.response_bytes = 0
        self.types: dict[str, TypeState] = {}  #: by type URL

    def requested(self, request: Request, size: int, now: float) -> Answer | Expired | None:
        """Take a request of `size` bytes; return what it says of a push, if anything."""
        self.requests += 1
        self.request_bytes += size
        if request.type_url == HEALTH:  # a report, which nobody answers
            return None
        state = self._of(request.type_url)
        if request.nonce in state.waiting:
            return _answer(state, request, now)
        if request.nonce and (state.push is None or request.nonce != state.push.nonce):
            return Expired(request.type_url)
        state.subscribed = now
        return None

    def responded(
        self, response: Response, size: int, now: float, change: "Change | None" = None
    ) -> None:
        """Take a response of `size` bytes."""
        self.responses += 1
        self.response_bytes += size
        type_url, version, nonce, count = response
        state = self._of(type_url)
        state.push = push = Push(type_url, version, nonce, count, size, now, change)
        if not nonce:
            return  # nothing can be said of it
        state.waiting.pop(nonce, None)
        state.waiting[nonce] = push
        if len(state.waiting) > WAITING:
            del state.waiting[next(iter(state.waiting))]

    def unanswered(self) -> tuple[Push, ...]:
        """Return the pushes that wait for an answer."""
        return tuple(push for state in self.types.values() for push in state.waiting.values())

    def _of(self, type_url: str) -> TypeState:
        state = self.types.get(type_url)
        if state is None:
            state = TypeState()
            if len(self.types) < TYPES:
                self.types[type_url] = state
        return state


def take(waiting: dict[str, T], nonce: str) -> tuple[T, tuple[T, ...]]:
    """Take what a nonce belongs to, and what waited before it and will not be answered any more."""
    before = list(itertools.takewhile(lambda each: each != nonce, waiting))
    passed_over = tuple(waiting.pop(each) for each in before)
    return waiting.pop(nonce), passed_over


def _answer(state: TypeState, request: Request, now: float) -> Answer:
    push, passed_over = take(state.waiting, request.nonce)
    if request.error is None:
        answer = state.accepted = Answer(push, now, None, passed_over)
    else:
        text = request.error[:ERROR_CHARACTERS]
        answer = state.refused = Answer(push, now, text, passed_over)
    return answer
