"""A template's tokens as a tree of nodes.

Source: Go's text/template/parse; `define`, `template`, `block`, `break` and `continue` are not
known here: a bootstrap is one text.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from bootstrap.template.errors import TemplateError
from bootstrap.template.lexer import Token, tokens

SUPPORTED: Final = "if, else, else if, range, with, end, variables, and values or functions"
#: The actions that an `end` ends.
BLOCKS: Final = ("if", "with", "range")
UNSUPPORTED: Final = ("define", "template", "block", "break", "continue")
#: Of blocks and parentheses, so that no text exhausts Python's stack.
DEEPEST: Final = 50
#: A range may name the index and the element.
MOST_RANGE_VARIABLES: Final = 2


class Constant(NamedTuple):
    """A value that stands in the template; nil is one."""

    value: object


class Chain(NamedTuple):
    """A value and the fields looked up in it, one after the other.

    The value is a variable's name (with its `$`), a pipeline in parentheses, or None for the dot.
    """

    start: "str | Pipeline | None"
    fields: tuple[str, ...]


class Function(NamedTuple):
    """A function's name."""

    name: str


Operand = Constant | Chain | Function


class Pipeline(NamedTuple):
    """Commands, each of which gets the one before's result as its last argument."""

    line: int
    commands: tuple[tuple[Operand, ...], ...]
    #: Variables that get the result, with their `$`.
    variables: tuple[str, ...] = ()
    #: They are new ones, by `:=`.
    declares: bool = True


class Block(NamedTuple):
    """An `if`, `with` or `range` with what it holds."""

    word: str
    pipeline: Pipeline
    body: tuple["Node", ...]
    otherwise: tuple["Node", ...] = ()


Node = str | Pipeline | Block


def parse(text: str) -> tuple[Node, ...]:
    """Return the nodes of a template: plain text, what is printed, and blocks.

    Raises:
        TemplateError: with the line of the first trouble.
    """
    parser = _Parser(tokens(text))
    nodes, end = parser.nodes(None)
    if end:
        raise TemplateError(end.line, f"{{{{ {end.text} }}}}: expected an if, with or range before")
    return nodes


class _Parser:
    """Reads tokens one by one."""

    def __init__(self, stream: Iterable[Token]) -> None:
        self._stream: Iterator[Token] = iter(stream)
        self._next = next(self._stream)
        self._depth = 0

    def nodes(self, block: Token | None) -> tuple[tuple[Node, ...], Token | None]:
        """Return nodes up to an `else` or `end`, whose token is returned; None at the end."""
        found: list[Node] = []
        while not self._peek("end"):
            token = self._take()
            if token.kind == "text":
                found.append(token.text)
            elif self._peek("word", "end", "else"):
                return tuple(found), self._take()
            else:
                found.append(self._action(token))
        if block:
            raise TemplateError(block.line, f"{{{{ {block.text} }}}} has no {{{{ end }}}}")
        return tuple(found), None

    def _action(self, opening: Token) -> Node:
        """Return what the action at hand does."""
        if self._peek("word", *BLOCKS):
            return self._block(self._take())
        if self._peek("word", *UNSUPPORTED):
            word = self._take()
            found = f"{{{{ {word.text} }}}} is not supported"
            raise TemplateError(word.line, f"{found}; supported: {SUPPORTED}")
        pipeline = self._pipeline(opening, most_variables=1)
        self._expect_close("the value")
        return pipeline

    def _block(self, word: Token) -> Block:
        """Return the block that the word begins, up to and with its `end`."""
        self._deepen(word)
        most = MOST_RANGE_VARIABLES if word.text == "range" else 1
        pipeline = self._pipeline(word, most_variables=most)
        self._expect_close(word.text)
        body, end = self.nodes(word)
        otherwise: tuple[Node, ...] = ()
        if end and end.text == "else":
            otherwise = self._else(word)
        else:
            self._expect_close("end")
        self._depth -= 1
        return Block(word.text, pipeline, body, otherwise)

    def _else(self, block: Token) -> tuple[Node, ...]:
        if block.text != "range" and self._peek("word", block.text):
            return (self._block(self._take()),)  # its end is this one's too
        self._expect_close("else")
        nodes, end = self.nodes(block)
        if end and end.text != "end":
            raise TemplateError(end.line, f"a second {{{{ else }}}} in {{{{ {block.text} }}}}")
        self._expect_close("end")
        return nodes

    def _pipeline(self, begin: Token, *, most_variables: int = 0) -> Pipeline:
        """Return a pipeline up to what does not belong to it."""
        self._deepen(begin)
        pending, variables, declares = self._declaration(most_variables)
        commands = [self._command(begin, pending)]
        while self._peek("sign", "|"):
            commands.append(self._command(self._take(), None))
        for command in commands[1:]:
            if not isinstance(command[0], Function):
                raise TemplateError(begin.line, "expected a function after '|'")
        self._depth -= 1
        return Pipeline(begin.line, tuple(commands), variables, declares)

    def _declaration(self, most: int) -> tuple[Token | None, tuple[str, ...], bool]:
        """Return a variable that declares nothing, or the names of those that do."""
        if not most or not self._peek("variable"):
            return None, (), True
        first = self._take()
        names = [first.text]
        while len(names) < most and self._peek("sign", ","):
            comma = self._take()
            if not self._peek("variable"):
                raise TemplateError(comma.line, "expected a variable after ','")
            names.append(self._take().text)
        if self._peek("sign", ":=", "="):
            sign = self._take()
            return None, tuple(names), sign.text == ":="
        if len(names) > 1:
            raise TemplateError(first.line, "expected ':=' or '=' after the variables")
        return first, (), True

    def _command(self, before: Token, pending: Token | None) -> tuple[Operand, ...]:
        operands: list[Operand] = []
        if pending:
            operands.append(self._chain(f"${pending.text}"))
        while not self._peek("close") and not self._peek("sign", "|", ")"):
            if operands and not self._next.spaced:
                raise self._unexpected("white space between values")
            operands.append(self._operand())
        if not operands:
            raise TemplateError(before.line, f"nothing after {before.text!r}: expected a value")
        if len(operands) > 1 and not isinstance(operands[0], Function):
            raise TemplateError(before.line, "only a function takes arguments")
        return tuple(operands)

    def _operand(self) -> Operand:
        token = self._take()
        if token.kind == "constant":
            return Constant(token.value)
        if token.kind == "field":
            return self._chain(None, token.text)
        if token.kind == "variable":
            return self._chain(f"${token.text}")
        if token.kind == "word":
            return Constant(None) if token.text == "nil" else Function(token.text)
        if token.text == ".":
            return Chain(None, ())
        if token.text == "(":
            pipeline = self._pipeline(token)
            if not self._peek("sign", ")"):
                raise self._unexpected("')'")
            self._take()
            return self._chain(pipeline)
        raise TemplateError(
            token.line, f"unexpected {token.text!r}: expected a value or a function"
        )

    def _chain(self, start: str | Pipeline | None, *fields: str) -> Chain:
        """Return the value with the fields that follow without white space."""
        found = list(fields)
        while self._next.kind == "field" and not self._next.spaced:
            found.append(self._take().text)
        return Chain(start, tuple(found))

    def _peek(self, kind: str, *texts: str) -> bool:
        token = self._next
        return token.kind == kind and (not texts or token.text in texts)

    def _take(self) -> Token:
        token, self._next = self._next, next(self._stream, self._next)
        return token

    def _expect_close(self, what: str) -> None:
        if not self._peek("close"):
            raise self._unexpected(f"}}}} after {what}")
        self._take()

    def _unexpected(self, expected: str) -> TemplateError:
        token = self._take()
        return TemplateError(token.line, f"unexpected {token.text!r}: expected {expected}")

    def _deepen(self, token: Token) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise TemplateError(token.line, f"nested more than {DEEPEST} deep")
