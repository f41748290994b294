"""Comma lists of ports, CIDRs, interfaces and owners: text to values, each bad item named.

Items end up in the input of iptables-restore, so one that could smuggle in an option is refused.
Blanks around an item are dropped: the injector drops them in its own check, then passes the list
on as it was written.

Source: traffic-capture.md sections 2.2 rule 8, 3.2 and 4.2.
"""

import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final, NamedTuple

from iptables.netlink import IPV4, Family

LONGEST_INTERFACE: Final = 15  # IFNAMSIZ, less the final zero
MAX_PORT: Final = 65535
LARGEST_ID: Final = 2**32 - 2  # the one above stands for none
PORT: Final = "0|[1-9][0-9]{0,4}"
OWNER: Final = r"(0|[1-9]\d{0,9})(-(0|[1-9]\d{0,9}))?|[A-Za-z_][A-Za-z0-9_.-]*\$?"
INTERFACE: Final = r"[^\s/:!*\"'\\-][^\s/:!*\"'\\]*"


#: Takes an item, returns it as rules have it; ValueError says what was expected.
Check = Callable[[str], str]


class Selection(NamedTuple):
    """Everything ('*'), or the items named."""

    is_all: bool = False
    items: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is selected."""
        return not self.is_all and not self.items


class Ranges(NamedTuple):
    """Everything ('*'), or the blocks named, by family."""

    is_all: bool = False
    v4: tuple[str, ...] = ()  #: as written, host bits kept
    v6: tuple[str, ...] = ()  #: canonical, host bits kept

    def of(self, family: Family) -> tuple[str, ...]:
        """Return the blocks of a family."""
        return self.v4 if family == IPV4 else self.v6


class ListReader:
    """Reads lists; `problems` collects one line for each bad item.

    A label is how the user knows the list, such as '--proxy-uid'.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []

    def items(self, label: str, text: str, check: Check) -> tuple[str, ...]:
        """Return the items that pass the check, which returns them as rules have them."""
        found = []
        for item in filter(None, map(str.strip, text.split(","))):
            try:
                found.append(check(item))
            except ValueError as error:
                self.problems.append(f"{label} item {item!r}: {error}")
        return tuple(found)

    def selection(self, label: str, text: str, check: Check) -> Selection:
        """Return '*' or the items."""
        if text.strip() == "*":
            return Selection(is_all=True)
        return Selection(items=self.items(label, text, check))

    def ranges(self, label: str, text: str, *, may_be_all: bool) -> Ranges:
        """Return '*' or the blocks; where '*' makes no sense it is refused as an item."""
        if may_be_all and text.strip() == "*":
            return Ranges(is_all=True)
        items = self.items(label, text, cidr)
        return Ranges(
            v4=tuple(item for item in items if ":" not in item),
            v6=tuple(item for item in items if ":" in item),
        )

    def number(self, label: str, text: str, *, largest: int) -> int:
        """Return a decimal number in 1..largest, or 1 and a problem."""
        if re.fullmatch(r"[1-9][0-9]{0,9}", text.strip()) and int(text) <= largest:
            return int(text)
        self.problems.append(f"{label}={text!r}: expected a number in 1..{largest}")
        return 1


def ports(item: str) -> str:
    """Return a port, or a range as '8000:9000'; '8000-9000' is understood too."""
    parts = re.fullmatch(f"({PORT})(?:[:-]({PORT}))?", item)
    first, last = parts.groups(default="0") if parts else ("1", "0")
    if parts and parts[2] is None:
        last = first
    if not int(first) <= int(last) <= MAX_PORT:
        raise ValueError("expected a port in 0..65535, or a range such as 8000:9000")
    return item.replace("-", ":")


def interface(item: str) -> str:
    """Return an interface name, or the beginning of names followed by '+'."""
    if not re.fullmatch(INTERFACE, item) or not item.isprintable():
        raise ValueError("expected an interface such as eth0, or docker+ for all that begin so")
    if len(item.encode()) > LONGEST_INTERFACE:
        raise ValueError(f"expected at most {LONGEST_INTERFACE} characters")
    return item


def owner(item: str) -> str:
    """Return a user or group: its name, number, or a range of numbers."""
    if not re.fullmatch(OWNER, item, re.ASCII):
        raise ValueError("expected a name, a number, or a range such as 1000-2000")
    numbers = [int(number) for number in item.split("-")] if item[0].isdigit() else []
    if numbers != sorted(numbers) or max(numbers, default=0) > LARGEST_ID:
        raise ValueError(f"expected numbers up to {LARGEST_ID}, the smaller one first")
    return item


def cidr(item: str) -> str:
    """Return a block such as 10.0.0.0/8, host bits kept, IPv6 in canonical form."""
    text, _, length = item.partition("/")
    try:
        address = ip_address(text)
    except ValueError:
        address = None
    is_length = re.fullmatch("0|[1-9][0-9]{0,2}", length)
    if not address or "%" in text or not is_length or int(length) > address.max_prefixlen:
        raise ValueError("expected a CIDR such as 10.0.0.0/8 or 2001:db8::/32")
    return f"{address}/{length}"
