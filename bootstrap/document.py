"""Text to data and back: JSON where it is JSON, else YAML, whose library is imported only then.

Source: bootstrap.md sections 3.3 and 5.10.
"""

import json
from collections.abc import Mapping
from typing import Final

from bootstrap.errors import BootstrapError

Document = dict[str, object]

#: What a YAML constructor may raise besides YAMLError: explicit tags such as `!!int ''` or
#: `!!timestamp x` reach Python's own conversions, and depth its stack.
YAML_TROUBLE: Final = (ValueError, LookupError, AttributeError, TypeError, RecursionError)


def parse(text: str) -> object:
    """Return the data of a JSON or YAML document, None for one without content.

    Raises:
        ValueError: with the first trouble and its place; the text itself is not repeated.
    """
    if text.lstrip().startswith("{"):
        try:
            parsed: object = json.loads(text)
        except (ValueError, RecursionError):
            return parse_yaml(text)
        return parsed
    return parse_yaml(text) if text.strip() else None


def canonical_json(document: Mapping[str, object], *, indent: int | None = None) -> str:
    """Return the document as JSON with sorted keys.

    Raises:
        BootstrapError: the document is nested beyond what JSON readers take.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    try:
        text = json.dumps(
            document,
            sort_keys=True,
            separators=separators,
            indent=indent,
            ensure_ascii=False,
            allow_nan=False,
        )
    except (ValueError, RecursionError):
        raise BootstrapError(["metadata: expected values that JSON can hold"]) from None
    # Bytes of the environment that are no UTF-8 arrive as lone surrogates, which no reader takes.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def parse_object(text: str) -> dict[str, object]:
    """Return the members of a JSON object that can be written as JSON again.

    Raises:
        ValueError: it is none; nor are NaN and 1e999, which Python would read and write.
    """
    try:
        parsed = json.loads(text)
        json.dumps(parsed, allow_nan=False)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError("expected a JSON object")  # noqa: TRY004 - one error for all bad text
    return parsed


def parse_yaml(text: str) -> object:
    """Return the data of a YAML document with every mapping's keys as text.

    Raises:
        ValueError: as for `parse`.
    """
    import yaml  # noqa: PLC0415 - 7 ms and a megabyte that most pods need not spend

    try:
        return _with_text_keys(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ValueError(f"expected JSON or YAML: {_place(error)}") from None
    except YAML_TROUBLE as error:
        raise ValueError(f"expected JSON or YAML: {type(error).__name__}") from None


def _place(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "unreadable"
    # Problems quote at most one character or name of the text.
    where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{problem}{where}".replace("\n", " ")


def _with_text_keys(value: object, done: dict[int, object] | None = None) -> object:
    """Return a copy with text keys; what aliases share stays shared, or it could explode."""
    done = {} if done is None else done
    if id(value) in done:
        return done[id(value)]
    copy = value
    if isinstance(value, dict):
        copy = {_key(key): _with_text_keys(member, done) for key, member in value.items()}
    elif isinstance(value, list):
        copy = [_with_text_keys(member, done) for member in value]
    done[id(value)] = copy
    return copy


def _key(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)
