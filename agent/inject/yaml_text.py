"""YAML in and out, as the tools around Kubernetes take it.

A document that is not injected passes byte for byte, so texts are split before they are parsed.

Source: status-lifecycle.md section 11.14.
"""

import json
import re
from functools import cache
from typing import Any, Final, NamedTuple

from agent.inject.api.form import MOST_VALUES, count_values
from bootstrap.document import YAML_TROUBLE

#: A line that ends a document; what follows the dashes belongs to the next one.
SEPARATOR: Final = re.compile(r"---(?=[ \t\r\n]|$)[ \t]*(?:#.*)?")
#: Types that YAML 1.1 guesses and Go's library does not: dates, and 22:22 for 1342.
NOT_GUESSED: Final = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")
NUMBERS: Final = {
    "tag:yaml.org,2002:int": r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$",
    "tag:yaml.org,2002:float": (
        r"(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}
STRING: Final = "tag:yaml.org,2002:str"
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
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(keepends=True)):
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
        value = _with_text_keys(value) if is_tree else None
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
        first: [
            (tag, re.compile(NUMBERS[tag]) if tag in NUMBERS else pattern)
            for tag, pattern in resolvers
            if tag not in NOT_GUESSED
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


@cache
def _dumper() -> type[Any]:
    import yaml  # noqa: PLC0415 - only here

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # either
        """Writes text of several lines as a block, and everything in full."""

        def ignore_aliases(self, data: object) -> bool:
            del data
            return True

    def text(dumper: Any, value: str) -> object:  # noqa: ANN401 - either
        is_plain = dumper.resolve(yaml.ScalarNode, value, (True, False)) in UNQUOTED
        style = "|" if "\n" in value else None if is_plain else '"'
        return dumper.represent_scalar(STRING, value, style=style)

    Dumper.add_representer(str, text)
    return Dumper


def _begin(document: Text) -> str:
    return f"the document in line {document.line + 1}"


def _place(error: Any, document: Text) -> str:  # noqa: ANN401 - of the library
    mark = getattr(error, "problem_mark", None)
    problem = " ".join(str(getattr(error, "problem", None) or "unreadable").split())
    if not mark:
        return f"{_begin(document)}: expected YAML: {problem}"
    lines = document.text.splitlines()
    has_tab = mark.line < len(lines) and "\t" in lines[mark.line][: mark.column + 1]
    hint = "; indent with spaces, not tabs" if has_tab else ""
    return f"line {document.line + mark.line + 1}, column {mark.column + 1}: {problem}{hint}"


def _with_text_keys(value: Any) -> Any:  # noqa: ANN401 - YAML
    if isinstance(value, dict):
        return {_key(key): _with_text_keys(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_with_text_keys(member) for member in value]
    return value


def _key(key: object) -> str:
    return "null" if key is None else str(key).lower() if isinstance(key, bool) else str(key)
