"""Quantities of Kubernetes, such as 100m and 1Gi, in their canonical form.

Source: status-lifecycle.md section 11.17; Kubernetes' resource.Quantity.
"""

import re
from decimal import ROUND_UP, Context, Decimal
from typing import Final

EXPECTED: Final = "expected a quantity such as 100m, 2 or 128Mi"
PATTERN: Final = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]{1,2})|(Ki|[MGTPE]i|[numkMGTPE]))?"
)
#: More digits than any amount of anything needs.
LONGEST: Final = 64
BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
DECIMAL: Final = {
    -9: "n",
    -6: "u",
    -3: "m",
    0: "",
    3: "k",
    6: "M",
    9: "G",
    12: "T",
    15: "P",
    18: "E",
}
EXPONENTS: Final = {suffix: exponent for exponent, suffix in DECIMAL.items()}
#: Enough that nothing is rounded but what is below one billionth.
EXACT: Final = Context(prec=200)
#: Amounts below are written in decimal units even if they came in binary ones.
KIBI: Final = 1024


def canonical(value: object) -> str:
    """Return the quantity with the largest unit that leaves a whole number.

    Raises:
        ValueError: it is none.
    """
    text = str(value).strip() if isinstance(value, str | int | float) else ""
    found = PATTERN.fullmatch(text) if len(text) <= LONGEST else None
    if found is None or isinstance(value, bool):
        raise ValueError(EXPECTED)
    digits, exponent, suffix = found.groups(default="")
    if suffix in BINARY[1:]:
        amount = EXACT.multiply(Decimal(digits), Decimal(KIBI ** BINARY.index(suffix)))
    else:
        shift = int(exponent) if exponent else EXPONENTS[suffix]
        amount = EXACT.scaleb(Decimal(digits), shift)
    amount = amount.quantize(Decimal("1e-9"), rounding=ROUND_UP, context=EXACT)
    if not amount:
        return "0"
    if suffix in BINARY[1:] and abs(amount) >= KIBI and amount == int(amount):
        return _in_units_of(int(amount))
    return _decimal(amount, with_exponent=bool(exponent))


def _in_units_of(amount: int) -> str:
    index = 0
    while amount % KIBI == 0 and index < len(BINARY) - 1:
        amount //= KIBI
        index += 1
    return f"{amount}{BINARY[index]}"


def _decimal(amount: Decimal, *, with_exponent: bool) -> str:
    number, exponent = int(EXACT.scaleb(amount, 9)), -9
    while number % 1000 == 0 and exponent < max(DECIMAL):
        number //= 1000
        exponent += 3
    if with_exponent:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{DECIMAL[exponent]}"
