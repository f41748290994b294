import pytest

from iptables.lock.holders import LockFile, describe, holders

LOCKS = """\
1: FLOCK  ADVISORY  WRITE 4711 00:1a:55 0 EOF
1: -> FLOCK  ADVISORY  WRITE 4712 00:1a:55 0 EOF
2: POSIX  ADVISORY  READ 99 08:01:55 128 128
3: FLOCK  ADVISORY  WRITE 0 00:1a:56 0 EOF
4: LEASE  ACTIVE    READ 7 00:1a:55 0 EOF
5: OFDLCK ADVISORY  WRITE -1 00:1a:57 0 EOF
"""


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (LockFile(0, 0x1A, 55), [4711]),
        (LockFile(8, 1, 55), [99]),
        (LockFile(0, 0x1A, 56), [0]),
        (LockFile(0, 0x1A, 57), [-1]),
        (LockFile(0, 0x1A, 58), []),
    ],
)
def test_those_who_hold_a_lock_are_told_from_those_who_wait(
    file: LockFile, expected: list[int]
) -> None:
    assert holders(LOCKS, file) == expected


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        ({}, "nobody in sight holds /x"),
        ({7: "iptables -L"}, "/x is held by process 7 (iptables -L)"),
        ({7: "a", -1: "?"}, "/x is held by process 7 (a), a process of another pid namespace"),
    ],
)
def test_who_holds_a_lock_is_said_in_one_line(commands: dict[int, str], expected: str) -> None:
    assert describe("/x", commands) == expected
