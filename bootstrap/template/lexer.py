"""A template's text as tokens: runs of plain text, and what stands in `{{ }}`.

Source: Go's text/template/parse/lex.go; `{{- ` and ` -}}` take the white space beside them away.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from bootstrap.downward import unquote
from bootstrap.template.errors import TemplateError

Kind = Literal["text", "open", "close", "word", "field", "variable", "constant", "sign", "end"]

SPACE: Final = " \t\r\n"
TRIMMING_OPENING: Final = "{{-"
OPENING: Final = re.compile(rf"{{{{(?:-(?=[{SPACE}]))?")
CLOSING: Final = re.compile(rf"(?P<trim>[{SPACE}]+-)?}}}}")
COMMENT: Final = re.compile(rf"[{SPACE}]*/\*(?:(?!\*/).)*\*/(?P<trim>[{SPACE}]+-)?}}}}", re.DOTALL)
TOKEN: Final = re.compile(
    r"""
      (?P<space>[ \t\r\n]+)
    | (?P<quoted>"(?:\\.|[^"\\\n])*")
    | (?P<raw>`[^`]*`)
    | (?P<number>[+-]?\.?\d(?:[eE][+-]|[\w.])*)
    | (?P<field>\.[^\W\d]\w*)
    | (?P<variable>\$\w*)
    | (?P<word>[^\W\d]\w*)
    | (?P<sign>:=|[=|(),.])
    """,
    re.VERBOSE,
)
WORDS: Final = {"true": True, "false": False}
LONGEST_SHOWN: Final = 20


class Token(NamedTuple):
    """One token and where it stands."""

    kind: Kind
    #: As written; of a field and of a variable the name alone.
    text: str
    line: int
    #: White space stands before it.
    spaced: bool = False
    #: What a constant stands for.
    value: object = None


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a template; the last one is its end.

    Raises:
        TemplateError: an action is not closed, or holds what is no token.
    """
    at, line, trims = 0, 1, False
    while opening := OPENING.search(text, at):
        plain = text[at : opening.start()]
        yield from _plain(plain, line, left=trims, right=opening[0] == TRIMMING_OPENING)
        line += plain.count("\n")
        if comment := COMMENT.match(text, opening.end()):
            at, trims = comment.end(), bool(comment["trim"])
        else:
            action = _Action(text, opening.end(), line)
            yield from action.tokens()
            at, trims = action.at, action.trims
        line += text.count("\n", opening.start(), at)
    yield from _plain(text[at:], line, left=trims, right=False)
    yield Token("end", "", line)


def _plain(text: str, line: int, *, left: bool, right: bool) -> Iterator[Token]:
    text = text.lstrip(SPACE) if left else text
    text = text.rstrip(SPACE) if right else text
    if text:
        yield Token("text", text, line)


class _Action:
    """The inside of one action, up to and with its end."""

    def __init__(self, text: str, at: int, line: int) -> None:
        self.at = at
        #: The white space after it goes.
        self.trims = False
        self._text = text
        self._line = line

    def tokens(self) -> Iterator[Token]:
        begun, spaced = self._line, False
        yield Token("open", "{{", begun)
        while not (closing := CLOSING.match(self._text, self.at)):
            found = TOKEN.match(self._text, self.at)
            if not found:
                raise self._unreadable(begun)
            if found.lastgroup != "space":
                yield _token(found, self._line, spaced=spaced)
            spaced = found.lastgroup == "space"
            self._line += found[0].count("\n")
            self.at = found.end()
        yield Token("close", "}}", self._line)
        self.at, self.trims = closing.end(), bool(closing["trim"])

    def _unreadable(self, begun: int) -> TemplateError:
        rest = self._text[self.at :]
        if "}}" not in rest:
            return TemplateError(begun, "an action is not closed: expected }}")
        shown = rest.split("\n")[0].split("}}")[0].strip()[:LONGEST_SHOWN]
        expected = "expected a value, a function, '|' or '}}'"
        return TemplateError(self._line, f"unreadable in an action: {shown!r}; {expected}")


def _token(found: re.Match[str], line: int, *, spaced: bool) -> Token:
    text = found[0]
    if found.lastgroup == "field":
        return Token("field", text[1:], line, spaced)
    if found.lastgroup == "variable":
        return Token("variable", text[1:], line, spaced)
    if found.lastgroup == "sign":
        return Token("sign", text, line, spaced)
    if found.lastgroup == "word" and text not in WORDS:
        return Token("word", text, line, spaced)
    try:
        return Token("constant", text, line, spaced, _constant(text))
    except ValueError as error:
        raise TemplateError(line, f"{text}: {error}") from None


def _constant(text: str) -> object:
    """Return what a constant stands for; ValueError where Go would not read it either."""
    if text in WORDS:
        return WORDS[text]
    if text[0] == "`":
        return text[1:-1].replace("\r", "")
    if text[0] == '"':
        return unquote(text)
    try:
        return int(text, 0)
    except ValueError:
        number = "" if text.lstrip("+-").isdigit() else text  # 010 is octal in Go
    try:
        return float(number)
    except ValueError:
        raise ValueError("expected a number") from None
