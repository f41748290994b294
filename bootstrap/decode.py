"""Proto JSON without protobuf: decoders that return the canonical form of one field's value.

A field decodes whatever JSON or YAML gave (camelCase and snake_case names, quoted numbers, enum
numbers, Go durations) to what protobuf would print: camelCase, enum names, "0.500s". Trouble is
noted as "path=value: expected ..." and the value dropped, so that all of it is reported at once.

Source: bootstrap.md section 3.3.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from bootstrap.durations import format_duration, parse_duration

Decoder = Callable[[object, str, list[str]], object]

#: What a decoder returns where it noted a problem.
INVALID: Final = object()
INT32: Final = (-(2**31), 2**31 - 1)
UINT32: Final = (0, 2**32 - 1)
INT64: Final = (-(2**63), 2**63 - 1)
LONGEST_SHOWN: Final = 60


class Field(NamedTuple):
    """One field of a message: how its value decodes, and which value proto JSON leaves out."""

    decode: Decoder
    #: The value protobuf does not print; None for fields that know whether they were set.
    zero: object = None


def enum(*names: str, **numbered: int) -> Field:
    """Return the field of an enum whose names count from 0, `numbered` ones aside."""
    by_number = {**dict(enumerate(names)), **{number: name for name, number in numbered.items()}}

    def decode(value: object, path: str, problems: list[str]) -> object:
        if value in by_number.values():
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return by_number.get(value, value)  # protobuf keeps numbers it does not know
        return _refuse(value, path, problems, "one of " + ", ".join(by_number.values()))

    return Field(decode, by_number[0])


def message(fields: Mapping[str, Field], *oneofs: frozenset[str]) -> Field:
    """Return the field of a message; of each of `oneofs` only one member may be set."""

    def decode(value: object, path: str, problems: list[str]) -> object:
        if not isinstance(value, dict):
            return _refuse(value, path, problems, "an object")
        return without_zeros(decode_fields(value, fields, oneofs, path, problems), fields)

    return Field(decode)


def repeated(member: Field) -> Field:
    """Return the field of a list."""

    def decode(value: object, path: str, problems: list[str]) -> object:
        if not isinstance(value, list):
            return _refuse(value, path, problems, "a list")
        return [
            decoded
            for index, item in enumerate(value)
            if (decoded := member.decode(item, f"{path}[{index}]", problems)) is not INVALID
        ]

    return Field(decode, [])


def mapping(member: Field) -> Field:
    """Return the field of a map from text."""

    def decode(value: object, path: str, problems: list[str]) -> object:
        if not isinstance(value, dict):
            return _refuse(value, path, problems, "an object")
        return {
            key: decoded
            for key, item in value.items()
            if (decoded := member.decode(item, _below(path, key), problems)) is not INVALID
        }

    return Field(decode, {})


def decode_fields(
    value: Mapping[str, object],
    fields: Mapping[str, Field],
    oneofs: tuple[frozenset[str], ...],
    path: str,
    problems: list[str],
) -> dict[str, object]:
    """Return the known fields that decode, zero values included; null and unknown ones go.

    The fields stand in the order of their declaration, as protobuf prints them.

    Args:
        value: the object as parsed.
        fields: by camelCase name.
        oneofs: names of which one may be set.
        path: where the object stands, '' for the whole document.
        problems: gains a line for each value that does not decode.
    """
    decoded: dict[str, object] = {}
    for key, item in value.items():
        name = key if key in fields else _camel_case(key)
        if item is None or name not in fields:
            continue
        where = f"{path}.{name}" if path else name
        if name in decoded:
            problems.append(f"{where}: expected one spelling of the field, found two")
        result = fields[name].decode(item, where, problems)
        if result is not INVALID:
            decoded[name] = result
    for oneof in oneofs:
        if len(both := sorted(oneof & decoded.keys())) > 1:
            where = f"{path}: " if path else ""
            problems.append(f"{where}expected one of {', '.join(both)}, found {len(both)}")
    return {name: decoded[name] for name in fields if name in decoded}


def without_zeros(decoded: Mapping[str, object], fields: Mapping[str, Field]) -> dict[str, object]:
    """Return the object without the values that proto JSON leaves out."""
    return {
        name: value
        for name, value in decoded.items()
        if fields[name].zero is None or value != fields[name].zero
    }


def _decode_text(value: object, path: str, problems: list[str]) -> object:
    if isinstance(value, str):
        return value
    return _refuse(value, path, problems, "text; put it in quotes")


def _decode_secret(value: object, path: str, problems: list[str]) -> object:
    if isinstance(value, str):
        return value
    problems.append(f"{path}: expected text; put it in quotes")
    return INVALID


def _decode_bool(value: object, path: str, problems: list[str]) -> object:
    if isinstance(value, bool):
        return value
    return _refuse(value, path, problems, "true or false, without quotes")


def _decode_duration(value: object, path: str, problems: list[str]) -> object:
    try:
        return format_duration(parse_duration(value if isinstance(value, str) else ""))
    except ValueError as error:
        return _refuse(value, path, problems, str(error).removeprefix("expected "))


def _decode_double(value: object, path: str, problems: list[str]) -> object:
    try:
        number = float(value) if isinstance(value, str | int | float) else float("nan")
    except (ValueError, OverflowError):
        number = float("nan")
    # Neither NaN nor infinity, which compare like this, can be written as JSON.
    if isinstance(value, bool) or not abs(number) < float("inf"):
        return _refuse(value, path, problems, "a number")
    return number


def _decode_carried(value: object, path: str, problems: list[str]) -> object:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return value
    return _refuse(value, path, problems, "a word")


def _integer(limits: tuple[int, int], *, as_text: bool = False) -> Decoder:
    smallest, largest = limits

    def decode(value: object, path: str, problems: list[str]) -> object:
        number = _whole(value)
        if number is None or not smallest <= number <= largest:
            return _refuse(value, path, problems, f"a whole number in {smallest}..{largest}")
        return str(number) if as_text else number

    return decode


def _whole(value: object) -> int | None:
    """Return the whole number that a JSON number or a quoted one stands for."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value) if isinstance(value, str) and not value.isdecimal() else value
        whole = int(number)
    except (ValueError, OverflowError):
        return None
    return whole if isinstance(number, str) or whole == number else None


def _refuse(value: object, path: str, problems: list[str], expected: str) -> object:
    # What is inside an object or a list may be a secret; its kind says enough.
    shown = f"<{type(value).__name__}>" if isinstance(value, dict | list) else repr(value)
    if len(shown) > LONGEST_SHOWN:
        shown = f"{shown[:LONGEST_SHOWN]}..."
    problems.append(f"{path}={shown}: expected {expected}")
    return INVALID


def _below(path: str, key: str) -> str:
    """Return the path of a key that users chose; it may hold line breaks."""
    return f"{path}.{key}" if key.isprintable() else f"{path}[{key!r}]"


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


STRING: Final = Field(_decode_text, "")
SECRET: Final = Field(_decode_secret, "")
BOOL: Final = Field(_decode_bool, zero=False)
DOUBLE: Final = Field(_decode_double, 0.0)
DURATION: Final = Field(_decode_duration)
INT: Final = Field(_integer(INT32), 0)
UINT: Final = Field(_integer(UINT32), 0)
#: Wrappers print their zero: they know whether they were set.
BOOL_VALUE: Final = Field(_decode_bool)
INT_VALUE: Final = Field(_integer(INT32))
INT64_VALUE: Final = Field(_integer(INT64, as_text=True))
EMPTY: Final = message({})
#: An enum that only the control plane reads: whatever word stands here is carried to it.
CARRIED: Final = Field(_decode_carried)
