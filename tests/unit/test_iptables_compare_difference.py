from collections.abc import Sequence

import pytest

from iptables.compare.difference import (
    Entry,
    Section,
    Step,
    chain_steps,
    installed_side,
    planned_side,
    render,
    sections,
)
from iptables.config import CaptureConfig
from iptables.installed import Hook, Own, as_saved
from iptables.plan import plan

PLANNED = plan(CaptureConfig(), 4)
SAVED = as_saved(PLANNED)
OURS = Own(
    {place: specs for place, specs in SAVED.items() if place[1].startswith("ISTIO_")},
    (Hook("nat", "OUTPUT", 1, "-j ISTIO_OUTPUT"),),
)


def entries(text: str) -> list[Entry]:
    """Return an entry per word; the key is its upper-case form."""
    return [Entry(word.upper(), word, f"why {word}") for word in text.split()]


def signs(steps: Sequence[Step]) -> list[tuple[str, str, int, int]]:
    return [(step.sign, step.text, step.earlier, step.position) for step in steps]


@pytest.mark.parametrize(
    ("wanted", "found", "expected"),
    [
        ("a b", "a b", []),
        ("a b", "A B", []),
        ("a b", "a", [("+", "b", 0, 2)]),
        ("a", "a b", [("-", "b", 0, 2)]),
        ("a c", "a b", [("-", "b", 0, 2), ("+", "c", 0, 2)]),
        ("b c a", "a b c", [("~", "a", 1, 3)]),
        ("a a", "a", [("+", "a", 0, 2)]),
        ("c a b", "a b d", [("+", "c", 0, 1), ("-", "d", 0, 3)]),
    ],
)
def test_rules_are_added_removed_or_moved(
    wanted: str, found: str, expected: list[tuple[str, str, int, int]]
) -> None:
    assert signs(chain_steps(entries(wanted), entries(found))) == expected


def test_what_is_installed_as_planned_does_not_differ() -> None:
    wanted, found = planned_side(PLANNED, {}), installed_side(OURS, {})

    assert sections("iptables-nft", wanted, found) == []


def test_a_chain_is_new_or_not_planned_or_changed() -> None:
    wanted = {("nat", "A"): entries("a"), ("nat", "B"): entries("b"), ("nat", "D"): []}
    found = {("nat", "B"): entries("c"), ("nat", "C"): []}

    titles = [section.title for section in sections("x", wanted, found)]

    assert titles == ["x nat A, new", "x nat B", "x nat D, new", "x nat C, not planned"]


def test_the_text_names_place_position_and_reason() -> None:
    steps = chain_steps(entries("b c d a"), entries("a b c e"))

    assert render([Section("iptables-nft nat OUTPUT", steps)]) == (
        "iptables-nft nat OUTPUT\n  + 3: d  # why d\n  - 4: e\n  ~ 1 -> 4: a  # why a\n"
    )


def test_what_has_no_position_shows_none() -> None:
    assert render([Section("t", (Step("+", 0, "a"),))]) == "t\n  + a\n"


def test_colours_surround_lines_and_nothing_else() -> None:
    section = Section("t", (Step("+", 1, "a"), Step("-", 1, "b"), Step("~", 2, "c", "", 1)))

    assert render([section], coloured=True) == (
        "\x1b[1mt\x1b[0m\n\x1b[32m  + 1: a\x1b[0m\n\x1b[31m  - 1: b\x1b[0m\n"
        "\x1b[33m  ~ 1 -> 2: c\x1b[0m\n"
    )


def test_no_difference_is_said() -> None:
    assert render([]) == "nothing differs from the plan\n"
