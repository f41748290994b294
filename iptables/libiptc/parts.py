"""A rule's text taken apart the way libiptc wants it, and put together again from there.

Source: traffic-capture.md sections 5 and 7; iptables(8).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from iptables.normal import SYNONYMS, options, words

#: Attributes of python-iptables' rules, by option.
ATTRIBUTES: Final[Mapping[str, str]] = {
    "-s": "src",
    "-d": "dst",
    "-i": "in_interface",
    "-o": "out_interface",
    "-p": "protocol",
}
#: What these attributes are where nothing was asked for.
ANYTHING: Final = ("0.0.0.0/0.0.0.0", "::/0", "ip")


class Part(NamedTuple):
    """A match or target, and its parameters; an inverted one begins with '!'."""

    name: str
    parameters: tuple[tuple[str, str], ...]


class Parts(NamedTuple):
    """A rule in parts."""

    attributes: tuple[tuple[str, str], ...]  #: of the packet itself; see ATTRIBUTES
    matches: tuple[Part, ...]
    target: Part


class Operation(NamedTuple):
    """A line of restore input, such as '-I OUTPUT 1 -j ISTIO_OUTPUT'; or '*nat', or 'COMMIT'."""

    line: int  #: its number, counted from 1
    command: str  #: -N, -A, -I, -D, -F, -X, *, COMMIT
    chain: str = ""  #: the table's name for '*'
    position: int = 0  #: counted from 1; 0 where the line has none
    spec: str = ""


def parse_input(text: str) -> Iterator[Operation]:
    """Return the lines of restore input, comments left out."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("*"):
            yield Operation(number, "*", line[1:].strip())
        elif line == "COMMIT":
            yield Operation(number, line)
        elif line.startswith("-"):
            command, chain, *rest = line.split(" ", 2)
            spec = rest[0] if rest else ""
            first, _, others = spec.partition(" ")
            if first.isdigit():
                yield Operation(number, command, chain, int(first), others)
            else:
                yield Operation(number, command, chain, 0, spec)


def parse_spec(spec: str) -> Parts:
    """Return a rule in parts.

    An option belongs to the match named last, or to that of the rule's protocol.
    """
    attributes: list[tuple[str, str]] = []
    parts: list[tuple[str, list[tuple[str, str]]]] = []
    protocol, has_target = "", False
    for option, value, inverted in options(spec):
        marked = f"!{value}" if inverted else value
        if option in ATTRIBUTES:
            attributes.append((ATTRIBUTES[option], marked))
            protocol = value if option == "-p" else protocol
        elif option in ("-m", "-j"):
            parts.append((value, []))
            has_target = option == "-j"
        else:
            if not parts:
                parts.append((protocol, []))
            name = SYNONYMS.get(option, option).removeprefix("--")
            parts[-1][1].append((name, marked))
    made = [Part(name, tuple(parameters)) for name, parameters in parts]
    target = made.pop() if has_target else Part("", ())
    return Parts(tuple(attributes), tuple(made), target)


def render_spec(
    attributes: Iterable[tuple[str, str | None]],
    matches: Iterable[tuple[str, Mapping[str, Sequence[str]]]],
    target: tuple[str, Mapping[str, Sequence[str]]],
) -> str:
    """Return the text of a rule as python-iptables reads it.

    Args:
        attributes: option and value, None or everything where nothing was asked for.
        matches: name and parameters of each; a parameter's words may begin with '!'.
        target: likewise; an empty name for none.
    """
    text = []
    for option, value in attributes:
        if value and value not in ANYTHING:
            text += ["!", option, value[1:]] if value.startswith("!") else [option, value]
    for name, parameters in matches:
        text += ["-m", name, *_parameters(parameters)]
    name, parameters = target
    if name:
        text += ["-j", name, *_parameters(parameters)]
    return " ".join(text)


def _parameters(parameters: Mapping[str, Sequence[str]]) -> list[str]:
    text = []
    for name, (*values,) in parameters.items():
        is_inverted = values[:1] == ["!"]
        text += ["!"] if is_inverted else []
        text += [f"--{name}", *map(_quoted, values[is_inverted:])]
    return text


def _quoted(word: str) -> str:
    if words(word) == [word]:
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
