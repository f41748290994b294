"""Who makes room in a crowd."""

from agent.http.crowd import BUSY, STALLED, WAITING, Crowd


def crowd(**groups: int) -> Crowd[str]:
    found: Crowd[str] = Crowd()
    for name, group in groups.items():
        found.put(name, group)
    return found


def order_of_going(members: Crowd[str]) -> list[str]:
    gone = []
    while members:
        gone.append(members.first_to_go())
        members.remove(gone[-1])
    return gone


def test_who_has_not_asked_goes_before_who_does_not_read_and_that_one_before_the_busy() -> None:
    members = crowd(a=BUSY, b=STALLED, c=WAITING, d=BUSY, e=STALLED, f=WAITING)

    assert order_of_going(members) == ["c", "f", "b", "e", "a", "d"]


def test_a_member_is_in_one_group_and_the_latest_there() -> None:
    members = crowd(a=STALLED, b=STALLED)

    members.put("a", STALLED)
    members.put("b", BUSY)

    assert len(members) == 2
    assert order_of_going(members) == ["a", "b"]


def test_groups_are_told_apart() -> None:
    members = crowd(a=BUSY, b=WAITING, c=STALLED)

    assert members.members(WAITING) == ["b"]
    assert members.members() == ["b", "c", "a"]


def test_whoever_is_not_there_may_leave() -> None:
    members = crowd(a=BUSY)

    members.remove("b")

    assert len(members) == 1
