"""Who makes room in a crowd."""

from agent.http.crowd import BUSY, WAITED_FOR, Crowd


def crowd(*peers: str, **groups: int) -> Crowd[str]:
    """Return a crowd of members by name, of the peers given first and of one peer otherwise."""
    found: Crowd[str] = Crowd()
    for (name, group), peer in zip(groups.items(), (*peers, *["peer"] * 9), strict=False):
        found.add(name, peer)
        found.move(name, group)
    return found


def order_of_going(members: Crowd[str]) -> list[str]:
    gone = []
    while members:
        gone.append(members.first_to_go())
        members.remove(gone[-1])
    return gone


def test_whom_we_wait_for_goes_before_who_waits_for_us() -> None:
    members = crowd(a=BUSY, b=WAITED_FOR, c=BUSY, d=WAITED_FOR)

    assert members.members() == ["a", "b", "c", "d"]
    assert order_of_going(members) == ["b", "d", "a", "c"]


def test_nobody_pushes_out_anybody_but_themselves() -> None:
    members = crowd(
        "many", "many", "one", "many", a=BUSY, b=BUSY, c=WAITED_FOR, d=BUSY, e=WAITED_FOR
    )

    assert order_of_going(members)[:2] == ["a", "b"]


def test_a_member_is_in_one_group_and_the_latest_there() -> None:
    members = crowd(a=WAITED_FOR, b=WAITED_FOR)

    members.move("a", WAITED_FOR)
    members.move("b", BUSY)

    assert len(members) == 2
    assert order_of_going(members) == ["a", "b"]


def test_who_is_gone_stays_so() -> None:
    members = crowd(a=BUSY, b=BUSY)

    members.remove("a")
    members.remove("a")
    members.move("a", BUSY)

    assert members.members() == ["b"]
