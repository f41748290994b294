"""The table of acknowledgements against the plainest account of the same messages."""

from typing import Literal, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from agent.xds.discovery import Request, Response
from agent.xds.sync import NOT_SENT, STALE, SYNCED, Answer, Expired, SyncTable

TYPES = ("a", "b")


class Message(NamedTuple):
    """A request or a response; nonces are drawn from few, so that they meet."""

    direction: Literal["request", "response"]
    type_url: str
    nonce: str
    error: str | None


messages = st.lists(
    st.builds(
        Message,
        st.sampled_from(["request", "response"]),
        st.sampled_from(TYPES),
        st.sampled_from(["", "1", "2", "3", "4"]),
        st.sampled_from([None, None, "bad"]),
    ),
    max_size=40,
)


class Model:
    """Everything that was sent, in order, and what became of each; nothing is forgotten."""

    def __init__(self) -> None:
        self.pushes: list[dict[str, object]] = []
        self.asked: set[str] = set()

    def respond(self, message: Message) -> None:
        for push in self.open(message.type_url):
            if push["nonce"] == message.nonce:
                push["fate"] = "forgotten"
        self.pushes.append({"type": message.type_url, "nonce": message.nonce, "fate": None})

    def request(self, message: Message) -> str:
        self.asked.add(message.type_url)
        waiting = self.open(message.type_url)
        if message.nonce and message.nonce in [push["nonce"] for push in waiting]:
            for push in waiting:
                if push["nonce"] == message.nonce:
                    push["fate"] = "NACK" if message.error else "ACK"
                    return str(push["fate"])
                push["fate"] = "passed over"
        sent = [push for push in self.pushes if push["type"] == message.type_url]
        is_current = not message.nonce or (sent and sent[-1]["nonce"] == message.nonce)
        return "subscription" if is_current else "expired"

    def open(self, type_url: str) -> list[dict[str, object]]:
        return [
            push
            for push in self.pushes
            if push["type"] == type_url and push["nonce"] and push["fate"] is None
        ]

    def state(self, type_url: str) -> str | None:
        sent = [push for push in self.pushes if push["type"] == type_url]
        if not sent:
            return NOT_SENT if type_url in self.asked else None
        return SYNCED if sent[-1]["fate"] == "ACK" else STALE


def meaning(said: Answer | Expired | None) -> str:
    if said is None:
        return "subscription"
    if isinstance(said, Expired):
        return "expired"
    return "NACK" if said.error else "ACK"


@given(messages)
def test_the_table_says_what_the_messages_say(sequence: list[Message]) -> None:
    table, model = SyncTable(), Model()

    for at, message in enumerate(sequence):
        if message.direction == "response":
            table.responded(Response(message.type_url, "v", message.nonce, 0), 1, at)
            model.respond(message)
        else:
            head = Request(message.type_url, "", message.nonce, message.error)
            assert meaning(table.requested(head, 1, at)) == model.request(message)
        for type_url in TYPES:
            known = table.types.get(type_url)
            assert (known and known.name()) == model.state(type_url)

    waiting = {(push.type_url, push.nonce) for push in table.unanswered()}
    assert waiting == {(kind, push["nonce"]) for kind in TYPES for push in model.open(kind)}
