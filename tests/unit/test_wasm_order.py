"""Orders and outcomes are lines, whatever is in them."""

import pytest

from agent.wasm.cache import PullSecret
from agent.wasm.order import (
    Converted,
    Fetched,
    FetchOrder,
    Order,
    Outcome,
    Refused,
    StructOrder,
    read_order,
    read_outcome,
    read_settings,
    write_order,
    write_outcome,
    write_settings,
)
from agent.wasm.settings import FetchSettings

ORDERS: list[Order] = [
    FetchOrder("http://a/\n", "", 1.5, None),
    FetchOrder("oci://a", "ab", 0.0, PullSecret('{"auths": {}}\n'), ("cd", "ef")),
    FetchOrder("oci://a", "ab", 0.0, PullSecret("")),
    StructOrder("type.googleapis.com/x", b"\0\n\xff"),
]
OUTCOMES: list[Outcome] = [
    Fetched("ab"),
    Fetched("ab", is_new=False),
    Converted(b"\0\n\xff"),
    Refused("it is\nso", "fetch_failure"),
    Refused("no"),
]


@pytest.mark.parametrize("order", ORDERS)
def test_an_order_is_read_as_it_was_written(order: Order) -> None:
    line = write_order(7, order)

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert read_order(line) == (7, order)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_is_read_as_it_was_written(outcome: Outcome) -> None:
    line = write_outcome(7, outcome)

    assert line.count(b"\n") == 1
    assert read_outcome(line) == (7, outcome)


def test_settings_are_read_as_they_were_written() -> None:
    settings = FetchSettings("/a", ("b",), ("10.0.0.0/8",), 1.5, 2, 3)

    assert read_settings(write_settings(settings)) == settings


def test_what_may_be_secret_is_not_shown() -> None:
    assert "hidden" not in repr(FetchOrder("a", "", 1, PullSecret("hidden")))
    assert "hidden" not in repr(StructOrder("a", b"hidden"))
    assert "hidden" not in repr(Converted(b"hidden"))
