"""The steps of a difference, taken, turn what is found into what is wanted."""

from hypothesis import given
from hypothesis import strategies as st

from iptables.compare.difference import Entry, chain_steps

RULES = st.lists(st.sampled_from("abcdef"), max_size=8)


@given(wanted=RULES, found=RULES)
def test_the_steps_lead_to_the_plan(wanted: list[str], found: list[str]) -> None:
    steps = chain_steps(
        [Entry(name, name) for name in wanted], [Entry(name, name) for name in found]
    )

    gone = {step.earlier or step.position for step in steps if step.sign != "+"}
    left = [name for number, name in enumerate(found, start=1) if number not in gone]
    for step in sorted(steps, key=lambda step: step.position):
        if step.sign != "-":
            left.insert(step.position - 1, step.text)

    assert left == wanted


@given(found=RULES)
def test_without_a_difference_there_is_no_step(found: list[str]) -> None:
    entries = [Entry(name, name) for name in found]

    assert chain_steps(entries, entries) == ()
