"""How many scrapes go on at once."""

from agent.status.merge.admission import PER_PEER, TOTAL, Admission, Budget, Held


def test_one_caller_leaves_room_for_others() -> None:
    admission = Admission()

    greedy = [admission.enter("a") for _ in range(PER_PEER + 1)]

    assert greedy == [True] * PER_PEER + [False]
    assert admission.enter("b")


def test_there_is_a_limit_to_all_callers() -> None:
    admission = Admission()

    entered = [admission.enter(f"peer {number}") for number in range(TOTAL + 1)]

    assert entered == [True] * TOTAL + [False]


def test_a_place_that_was_given_back_is_taken_again() -> None:
    admission = Admission()
    for number in range(TOTAL):
        admission.enter(f"peer {number}")

    admission.leave("peer 0")

    assert admission.enter("peer 1")
    assert not admission.enter("peer 0")


def test_nothing_is_kept_of_a_caller_that_was_refused_or_is_gone() -> None:
    admission = Admission()
    for _ in range(PER_PEER + 1):
        admission.enter("a")
    for _ in range(PER_PEER):
        admission.leave("a")

    assert [admission.enter("a") for _ in range(PER_PEER + 1)] == [True] * PER_PEER + [False]


def test_what_is_held_is_bounded_for_all_together() -> None:
    budget = Budget(10)

    with Held(budget) as first, Held(budget) as second:
        taken = [first.add(b"123456"), second.add(b"12345"), second.add(b"1234"), first.add(b"1")]
        assert (bytes(first.body), bytes(second.body)) == (b"123456", b"1234")

    assert taken == [True, False, True, False]
    assert budget.left == 10
    assert first.body == b""
