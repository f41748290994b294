"""Go's `printf`, in the verbs that text and configuration need.

Source: Go's package fmt. Where Go prints what is wrong into the text, this is an error.
"""

import re
from typing import Final

from bootstrap.template.values import NESTED_NIL, kind, number_text, printed, to_json

#: Three digits: nobody wants a column wider than that.
DIRECTIVE: Final = re.compile(
    r"%(?P<flags>[-+# 0]*)(?P<width>\d{0,3})(?P<precision>(?:\.\d{0,3})?)(?P<verb>.?)", re.DOTALL
)
TEXTS: Final = "vsqt"
WHOLE_NUMBERS: Final = "dxXo"
NUMBERS: Final = "feEgG"


def printf(form: str, *arguments: object) -> str:
    """Return the form with each directive replaced by its argument.

    Raises:
        TypeError: too many arguments or too few, or of another kind.
        ValueError: the verb is not known.
    """
    if not isinstance(form, str):
        raise TypeError(f"expected text, found {kind(form)}")
    rest = [*arguments]

    def replaced(found: re.Match[str]) -> str:
        if found["verb"] == "%":
            return "%"
        if not rest:
            raise TypeError(f"{found[0]} has no argument")
        return _formatted(found, rest.pop(0))

    text = DIRECTIVE.sub(replaced, form)
    if rest:
        raise TypeError(f"{len(arguments)} arguments, {len(rest)} more than the form takes")
    return text


def _formatted(found: re.Match[str], value: object) -> str:
    verb = found["verb"]
    if not verb or verb not in TEXTS + WHOLE_NUMBERS + NUMBERS:
        known = " ".join(f"%{each}" for each in TEXTS + WHOLE_NUMBERS + NUMBERS)
        raise ValueError(f"{found[0]} is not supported; supported: {known}")
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if (verb in WHOLE_NUMBERS and not is_whole) or (
        verb in NUMBERS and not isinstance(value, float)
    ):
        raise TypeError(f"{found[0]} of {kind(value)}")
    if verb in WHOLE_NUMBERS or (verb in NUMBERS and (found["precision"] or verb not in "gG")):
        return found[0] % value
    text = number_text(value) if isinstance(value, float) else _text(verb, value)
    return f"%{found['flags'].replace('0', '')}{found['width']}{found['precision']}s" % text


def _text(verb: str, value: object) -> str:
    if verb == "q":
        return to_json(value)
    return NESTED_NIL if value is None else printed(value)
