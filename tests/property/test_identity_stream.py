"""Any conversation over SDS: what Envoy has is what it asked for, and nothing is sent twice."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agent.identity.secret import SECRET, Roots, SecretRequest, read_request, write_secret
from agent.identity.stream import Meaning, SdsStream
from agent.protobuf.wire import WireError

NAMES = st.lists(st.sampled_from("abc"), max_size=4)


class Conversation(RuleBasedStateMachine):
    """Envoy on one end, and on the other a server that does what the stream says."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = SdsStream()
        self.secrets = dict.fromkeys("abc", 0)  # name -> version
        self.held: dict[str, int] = {}  # what Envoy has got
        self.wanted: set[str] = set()
        self.nonce = ""
        self.sent = 0

    def answer(self, names: tuple[str, ...]) -> None:
        if not names:
            return
        self.sent += 1
        self.nonce = str(self.sent)
        digests = {name: self.secrets[name] for name in names}
        self.stream.sent(self.nonce, digests)
        self.held |= digests

    def request(self, names: list[str], nonce: str, error: str | None = None) -> Meaning:
        meaning, due = self.stream.receive(SecretRequest(SECRET, nonce, tuple(names), error, "me"))
        self.answer(due)
        return meaning

    @rule(names=NAMES)
    def subscribe_anew(self, names: list[str]) -> None:
        self.held.clear()
        self.request(names, "")
        self.wanted = set(names)

    @rule(names=NAMES)
    def answer_to_the_last_response(self, names: list[str]) -> None:
        self.request(names, self.nonce)
        self.wanted = set(names)

    @precondition(lambda self: self.wanted and self.sent > 1)
    @rule(names=NAMES.filter(bool))
    def answer_to_an_older_response(self, names: list[str]) -> None:
        assert self.request(names, str(self.sent - 1)) is Meaning.STALE

    @rule(names=NAMES)
    def refuse(self, names: list[str]) -> None:
        before = self.sent
        assert self.request(names, self.nonce, "bad") is Meaning.NACK
        assert self.sent == before

    @rule(name=st.sampled_from("abc"), is_new=st.booleans())
    def change(self, name: str, *, is_new: bool) -> None:
        self.secrets[name] += is_new
        if self.stream.is_subscribed(name) and self.stream.is_new(name, self.secrets[name]):
            assert self.held[name] != self.secrets[name]
            self.answer((name,))

    @invariant()
    def envoy_has_what_it_wants(self) -> None:
        assert set(self.stream.names()) == self.wanted
        assert {name: self.held[name] for name in self.wanted} == {
            name: self.secrets[name] for name in self.wanted
        }


TestConversation = Conversation.TestCase
TestConversation.settings = settings(max_examples=60, stateful_step_count=25)


@given(st.binary(max_size=60))
def test_hostile_requests_raise_nothing_but_their_error(raw: bytes) -> None:
    try:
        read_request(raw)
    except WireError:
        return


@given(st.text(max_size=9), st.binary(max_size=300))
def test_a_secret_of_any_content_is_well_formed(name: str, content: bytes) -> None:
    from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import Secret  # noqa: PLC0415 - slow

    secret = Secret.FromString(write_secret(name, Roots(content)))

    assert (secret.name, secret.validation_context.trusted_ca.inline_bytes) == (name, content)
