"""What pushes change, against the sets that they bring about; SotW and delta say the same."""

from hypothesis import given
from hypothesis import strategies as st

from agent.protobuf.wire import message
from agent.xds.discovery import Kind, Resource, write_response
from agent.xds.inventory import Change, Inventory
from agent.xds.resources import LISTENER

sets = st.lists(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), max_size=6), min_size=1
)


def push(kind: Kind, held: dict[str, int], wanted: dict[str, int]) -> bytes:
    """Return what a control plane sends: the whole set, or what is different."""
    is_whole = kind is Kind.SOTW
    sent = {name: body for name, body in wanted.items() if is_whole or held.get(name) != body}
    resources = [
        Resource(LISTENER, name, "", message((1, name), (2, body))) for name, body in sent.items()
    ]
    removed = sorted(held.keys() - wanted.keys())
    return write_response(
        kind, LISTENER, version="", nonce="", resources=resources, removed=removed
    )


def difference(held: dict[str, int], wanted: dict[str, int]) -> tuple[set[str], ...]:
    changed = {name for name in held.keys() & wanted.keys() if held[name] != wanted[name]}
    return wanted.keys() - held.keys(), changed, held.keys() - wanted.keys()


@given(st.sampled_from(Kind), sets)
def test_a_push_changes_what_is_different(kind: Kind, sequence: list[dict[str, int]]) -> None:
    inventory = Inventory(kind, LISTENER)
    inventory.begin({})
    held: dict[str, int] = {}

    for wanted in sequence:
        change = inventory.apply(push(kind, held, wanted))

        added, changed, removed = difference(held, wanted)
        assert (set(change.added), set(change.changed), set(change.removed)) == (
            added,
            changed,
            removed,
        )
        assert change.unknown == ()
        held = wanted


@given(st.sampled_from(Kind), sets, st.integers(0, 5))
def test_whoever_begins_later_never_calls_new_what_is_old(
    kind: Kind, sequence: list[dict[str, int]], start: int
) -> None:
    inventory = Inventory(kind, LISTENER)
    held: dict[str, int] = {}

    for number, wanted in enumerate(sequence):
        raw = push(kind, held, wanted)
        added, changed, _ = difference(held, wanted)
        held = wanted
        if number >= start:
            change: Change = inventory.apply(raw)
            assert set(change.added) <= added
            assert set(change.changed) <= changed
            assert added | changed <= {*change.added, *change.changed, *change.unknown}
