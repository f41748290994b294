"""YAML in and out, as the tools around Kubernetes take it.

A document that is not injected passes byte for byte, so texts are split before they are parsed.

Source: status-lifecycle.md section 11.14.
"""

import json
import re
from functools import cache
from io import StringIO
from typing import Any, Final, NamedTuple

from agent.inject.api.form import MOST_VALUES, count_values
from agent.inject.text import whole
from bootstrap.document import YAML_TROUBLE

#: A line that ends a document; what follows the dashes belongs to the next one.
SEPARATOR: Final = re.compile(r"---(?=[ \t\r\n]|$)[ \t]*(?:#.*)?")
INTEGER: Final = "tag:yaml.org,2002:int"
FLOAT: Final = "tag:yaml.org,2002:float"
STRING: Final = "tag:yaml.org,2002:str"
#: Numbers as Go's library guesses them, in the order in which it tries: 089 and 1e3 are some.
NUMBERS: Final = {
    INTEGER: re.compile(
        r"[-+]?(?:0[bB][01_]+|0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[0-7_]*|[1-9][0-9_]*)$", re.ASCII
    ),
    FLOAT: re.compile(
        r"(?:[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}
#: Types that YAML 1.1 guesses otherwise, or that Go's library does not guess: dates, and 22:22 for
#: 1342.
NOT_GUESSED: Final = (*NUMBERS, "tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")
#: Go's library reads these as true and false; they are text here, and written so that it is too.
SHORT_BOOLEANS: Final = ("y", "Y", "n", "N")
#: Text that is read as text without quotes, or that the library quotes by itself.
UNQUOTED: Final = (STRING, "tag:yaml.org,2002:yaml")
LONG_LINES: Final = 1 << 20


class Text(NamedTuple):
    """The text of one document."""

    text: str
    #: Lines of the file before it.
    line: int


def split(text: str) -> list[Text]:
    """Return the documents of a text that hold anything at all."""
    found: list[Text] = []
    lines: list[str] = []
    start = 0
    # Lines end as everywhere in Kubernetes: other signs that end one for Unicode are text.
    for number, line in enumerate(StringIO(text.removeprefix("\ufeff"), newline="\n")):
        if separator := SEPARATOR.match(line):
            found.append(Text("".join(lines), start))
            rest = line[separator.end() :]
            lines, start = ([rest], number) if rest.strip() else ([], number + 1)
        else:
            lines.append(line)
    found.append(Text("".join(lines), start))
    return [item for item in found if item.text.strip()]


def parse(document: Text) -> Any:  # noqa: ANN401 - YAML enters
    """Return the data of a document, None for one without any.

    Raises:
        ValueError: with the trouble and its line in the file.
    """
    import yaml  # noqa: PLC0415 - only here

    try:
        value = _json(document.text)
        value = yaml.load(document.text, Loader=_loader()) if value is None else value  # noqa: S506 - a safe loader
        is_tree = 0 < count_values(value) <= MOST_VALUES
        value = _as_json(value) if is_tree else None
    except yaml.YAMLError as error:
        raise ValueError(_place(error, document)) from None
    except YAML_TROUBLE as error:
        raise ValueError(f"{_begin(document)}: expected YAML: {type(error).__name__}") from None
    if not is_tree:
        most = f"expected at most {MOST_VALUES} values; its aliases stand for more"
        raise ValueError(f"{_begin(document)}: {most}")
    return value


def dump(value: object) -> str:
    """Return a document as YAML, keys sorted, without aliases."""
    import yaml  # noqa: PLC0415 - only here

    return str(
        yaml.dump(
            value, Dumper=_dumper(), default_flow_style=False, width=LONG_LINES, allow_unicode=True
        )
    )


def _json(text: str) -> object:
    """Return the data of a JSON document, which may be indented by tabs; None if it is none."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value: object = json.loads(text)
    except ValueError:
        return None
    return value


@cache
def _loader() -> type[Any]:
    import yaml  # noqa: PLC0415 - only here

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # either
        """Guesses types as Go's library does."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in NOT_GUESSED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for tag, pattern in NUMBERS.items():
        Loader.add_implicit_resolver(tag, pattern, list("+-.0123456789"))
    Loader.add_constructor(INTEGER, lambda loader, node: _integer(loader.construct_scalar(node)))
    return Loader


def _integer(text: str) -> int:
    """Return a whole number; one with a zero before it is octal."""
    digits = text.replace("_", "")
    is_octal = re.match("[-+]?0[0-7]", digits)
    return int(digits, 8 if is_octal else 0)


@cache
def _dumper() -> type[Any]:
    import yaml  # noqa: PLC0415 - only here

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # either
        """Writes text of several lines as a block, and everything in full."""

        def ignore_aliases(self, data: object) -> bool:
            del data
            return True

    def text(dumper: Any, value: str) -> object:  # noqa: ANN401 - either
        guessed = dumper.resolve(yaml.ScalarNode, value, (True, False))
        is_plain = guessed in UNQUOTED and not _is_guessed_by_go(value)
        style = "|" if "\n" in value else None if is_plain else '"'
        return dumper.represent_scalar(STRING, value, style=style)

    Dumper.add_representer(str, text)
    return Dumper


def _is_guessed_by_go(value: str) -> bool:
    return value in SHORT_BOOLEANS or any(pattern.match(value) for pattern in NUMBERS.values())


def _begin(document: Text) -> str:
    return f"the document in line {document.line + 1}"


def _place(error: Any, document: Text) -> str:  # noqa: ANN401 - of the library
    mark = getattr(error, "problem_mark", None)
    said = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
    problem = " ".join(str(said).split())
    if not mark:
        return f"{_begin(document)}: expected YAML: {problem}"
    lines = document.text.splitlines()
    has_tab = mark.line < len(lines) and "\t" in lines[mark.line][: mark.column + 1]
    hint = "; indent with spaces, not tabs" if has_tab else ""
    return f"line {document.line + mark.line + 1}, column {mark.column + 1}: {problem}{hint}"


def _as_json(value: Any) -> Any:  # noqa: ANN401 - YAML
    """Return the data as JSON can hold it: keys are text, and text has no halves of characters."""
    if isinstance(value, dict):
        return {_key(key): _as_json(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_as_json(member) for member in value]
    return whole(value) if isinstance(value, str) else value


def _key(key: object) -> str:
    if isinstance(key, str):
        return whole(key)
    return "null" if key is None else str(key).lower() if isinstance(key, bool) else str(key)
