"""Single fields of a message, read and replaced."""

from agent.protobuf.edit import enumeration, integer, oneof, replaced, without
from agent.protobuf.wire import message

MESSAGE = message((1, "a"), (2, b"x"), (1, "b"), (3, 5), (2, b"y"), (3, 2**64 - 1))


def test_the_last_number_wins() -> None:
    assert integer(MESSAGE, 3) == -1
    assert enumeration(MESSAGE, 3) == 2**32 - 1


def test_a_number_that_is_not_there_is_zero() -> None:
    assert integer(MESSAGE, 9) == 0


def test_of_several_the_last_one_counts() -> None:
    assert oneof(b"", (1, 2)) == (0, b"")
    assert oneof(message((1, b"a"), (1, b"b"), (2, b"c"), (3, b"d")), (1, 2)) == (2, b"c")
    assert oneof(message((1, b"a"), (2, b"c"), (1, b"b"), (1, b"d")), (1, 2)) == (1, b"bd")


def test_fields_are_replaced_and_others_kept() -> None:
    assert without(MESSAGE, 1, 2) == message((3, 5), (3, 2**64 - 1))
    assert replaced(MESSAGE, 1, b"c") == without(MESSAGE, 1) + message((1, b"c"))
