"""A template filled in: nodes and data to text.

Source: Go's text/template/exec.go.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bootstrap.errors import BootstrapError
from bootstrap.template.errors import TemplateError
from bootstrap.template.functions import functions
from bootstrap.template.parser import (
    Block,
    Chain,
    Constant,
    Function,
    Node,
    Operand,
    Pipeline,
    parse,
)
from bootstrap.template.values import field, is_true, kind, printed

#: What a function raises about its arguments; the rest would be our bug.
BAD_ARGUMENTS: Final = (TypeError, ValueError, LookupError, AttributeError, RecursionError)
#: Of the function in Python, which begins what Python says of a wrong number of arguments.
OWN_NAME: Final = re.compile(r"^\S+\(\) ")
#: Look at their arguments one by one, and only as far as they need.
CHOICES: Final = ("and", "or")
ROOT: Final = "$"


def render(
    text: str, data: Mapping[str, object], environ: Mapping[str, str], *, path: str
) -> tuple[str, list[str]]:
    """Return the template filled in, and a warning for each parameter that it misses.

    Args:
        text: of the template.
        data: the parameters by name.
        environ: the agent's environment, for `env`.
        path: the template's, for messages.

    Raises:
        BootstrapError: with path and line of the first trouble.
    """
    renderer = _Renderer(dict(data), functions(environ))
    try:
        renderer.render(parse(text))
    except TemplateError as error:
        raise BootstrapError([f"{path}:{error.line}: {error.reason}"]) from None
    return "".join(renderer.written), [f"{path}:{warning}" for warning in renderer.warnings]


class _Renderer:
    """Walks the nodes; variables live as long as the block that declares them."""

    def __init__(
        self, data: Mapping[str, object], table: Mapping[str, Callable[..., object]]
    ) -> None:
        self.written: list[str] = []
        self.warnings: list[str] = []
        self._data = data
        self._table = table
        self._dot: object = data
        self._variables: list[tuple[str, object]] = [(ROOT, data)]

    def render(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if isinstance(node, str):
                self.written.append(node)
            elif isinstance(node, Block):
                self._block(node)
            else:
                value = self._pipeline(node)
                if not node.variables:
                    if value is None:
                        self._warn_of(node)
                    self.written.append(printed(value))

    def _block(self, block: Block) -> None:
        outside = len(self._variables)
        if block.word == "range":
            self._range(block)
        else:
            value = self._pipeline(block.pipeline)
            dot = value if block.word == "with" else self._dot
            if is_true(value):
                self._inside(dot, block.body)
            else:
                self.render(block.otherwise)
        del self._variables[outside:]

    def _range(self, block: Block) -> None:
        pipeline = block.pipeline
        value = self._pipeline(pipeline._replace(variables=()))
        names = pipeline.variables
        elements = self._elements(value, pipeline.line)
        outside = len(self._variables)
        for key, element in elements:
            given = (element,) if len(names) == 1 else (key, element)
            for name, each in zip(names, given, strict=False):
                self._set(name, each, pipeline)
            self._inside(element, block.body)
            del self._variables[outside:]
        if not elements:
            self.render(block.otherwise)

    def _elements(self, value: object, line: int) -> list[tuple[object, object]]:
        if isinstance(value, list):
            return list(enumerate(value))
        if isinstance(value, dict):
            return sorted(value.items())
        if value is None:
            return []
        raise TemplateError(line, f"range over {kind(value)}: expected a list or a map")

    def _inside(self, dot: object, nodes: Sequence[Node]) -> None:
        outside, self._dot = self._dot, dot
        self.render(nodes)
        self._dot = outside

    def _pipeline(self, pipeline: Pipeline) -> object:
        value: object = None
        for number, command in enumerate(pipeline.commands):
            piped = (value,) if number else ()
            value = self._command(command, piped, pipeline.line)
        for name in pipeline.variables:
            self._set(name, value, pipeline)
        return value

    def _set(self, name: str, value: object, pipeline: Pipeline) -> None:
        if pipeline.declares:
            self._variables.append((f"${name}", value))
            return
        for at in range(len(self._variables) - 1, -1, -1):
            if self._variables[at][0] == f"${name}":
                self._variables[at] = (f"${name}", value)
                return
        raise _undefined(f"${name}", pipeline.line)

    def _command(
        self, command: tuple[Operand, ...], piped: tuple[object, ...], line: int
    ) -> object:
        head, *arguments = command
        if not isinstance(head, Function):
            return self._value(head, line)
        if head.name in CHOICES:
            return self._choice(head.name, arguments, piped, line)
        given = [self._value(argument, line) for argument in arguments]
        return self._call(head.name, (*given, *piped), line)

    def _choice(
        self, name: str, arguments: Sequence[Operand], piped: tuple[object, ...], line: int
    ) -> object:
        """Return the first value that decides an `and` or `or`, else the last."""
        value: object = None
        for argument in arguments:
            value = self._value(argument, line)
            if is_true(value) is (name == "or"):
                return value
        if not arguments and not piped:
            raise TemplateError(line, f"function {name}: expected arguments")
        return piped[0] if piped else value

    def _value(self, operand: Operand, line: int) -> object:
        if isinstance(operand, Constant):
            return operand.value
        if isinstance(operand, Function):
            return self._call(operand.name, (), line)
        return self._chain(operand, line)

    def _chain(self, chain: Chain, line: int) -> object:
        if chain.start is None:
            value = self._dot
        elif isinstance(chain.start, str):
            value = self._variable(chain.start, line)
        else:
            value = self._pipeline(chain.start)
        for name in chain.fields:
            try:
                value = field(value, name)
            except ValueError as error:
                raise TemplateError(line, str(error)) from None
        return value

    def _variable(self, name: str, line: int) -> object:
        for known, value in reversed(self._variables):
            if known == name:
                return value
        raise _undefined(name, line)

    def _call(self, name: str, arguments: tuple[object, ...], line: int) -> object:
        if name not in self._table:
            known = ", ".join(sorted((*self._table, *CHOICES), key=str.lower))
            raise TemplateError(line, f"function {name} is not supported; supported: {known}")
        try:
            return self._table[name](*arguments)
        except BAD_ARGUMENTS as error:
            reason = OWN_NAME.sub("", str(error))
            raise TemplateError(line, f"function {name}: {reason}") from None

    def _warn_of(self, pipeline: Pipeline) -> None:
        """Note a parameter that is printed and not there; Go prints the same, Envoy refuses it."""
        head = pipeline.commands[0][0]
        if isinstance(head, Chain) and head.fields and self._dot is self._data:
            name = ".".join(("", *head.fields))
            self.warnings.append(f"{pipeline.line}: {name} has no value in this pod")


def _undefined(name: str, line: int) -> TemplateError:
    return TemplateError(line, f"variable {name} is not defined here")
