"""The injector's own configuration: policy, templates and selectors.

Source: status-lifecycle.md sections 11.2 and 11.3.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agent.inject.api.form import shown
from agent.inject.api.types import Object
from agent.inject.selectors import Selector, parse_selector
from bootstrap.document import parse_yaml

ACTION: Final = "{{"
BUILT_IN: Final = ("sidecar", "gateway", "grpc-agent", "grpc-simple")


class Configuration(NamedTuple):
    """What is injected, and into which pods."""

    policy: str = "enabled"
    default_templates: tuple[str, ...] = ("sidecar",)
    #: Further templates, parsed; they win over built-in ones. None: its text cannot be used.
    templates: Mapping[str, Object | None] = {}
    aliases: Mapping[str, tuple[str, ...]] = {}
    never_inject: tuple[Selector, ...] = ()
    always_inject: tuple[Selector, ...] = ()
    injected_annotations: Mapping[str, str] = {}


def parse_configuration(
    document: Mapping[str, Any], *, source: str
) -> tuple[Configuration, list[str], list[str]]:
    """Return the configuration, a line for each problem, and warnings.

    A template's text is a partial pod in YAML. Text with `{{` belongs to another injector's
    template engine: pods that ask for such a template are refused. Where it has the name of a
    built-in template, as the texts that come with the mesh do, the built-in one is used.

    Args:
        document: as in the ConfigMap `istio-sidecar-injector`, key `config`.
        source: how messages call it.
    """
    read = _Reader(document, source)
    never, always = read.selectors("neverInjectSelector"), read.selectors("alwaysInjectSelector")
    configuration = Configuration(
        policy=str(document.get("policy", "enabled")),
        default_templates=tuple(read.names(document.get("defaultTemplates"), "defaultTemplates"))
        or ("sidecar",),
        templates=read.templates(),
        aliases={
            name: tuple(read.names(value, f"aliases[{name!r}]"))
            for name, value in read.pairs("aliases").items()
        },
        never_inject=never,
        always_inject=always,
        injected_annotations=read.annotations(),
    )
    return configuration, read.problems, read.warnings


class _Reader:
    def __init__(self, document: Mapping[str, Any], source: str) -> None:
        self.document = document
        self.source = source
        self.problems: list[str] = []
        self.warnings: list[str] = []

    def templates(self) -> dict[str, Object | None]:
        found: dict[str, Object | None] = {}
        for name, text in self.pairs("templates").items():
            if not isinstance(text, str):
                self._note(f"templates[{name!r}]", text, "text: a partial pod in YAML")
            elif ACTION not in text:
                self._add_template(found, name, text)
            elif name in BUILT_IN:
                self.warnings.append(f"{self._actions(name)}; the built-in one is used")
            else:
                self.warnings.append(f"{self._actions(name)}; pods that ask for it are refused")
                found[name] = None
        return found

    def _actions(self, name: str) -> str:
        return f"{self.source}: templates[{name!r}] has actions in {ACTION!r}, which are not run"

    def _add_template(self, found: dict[str, Object | None], name: str, text: str) -> None:
        try:
            pod = parse_yaml(text)
        except ValueError as error:
            self.problems.append(f"{self.source}: templates[{name!r}]: {error}")
            return
        if pod is not None and not isinstance(pod, dict):
            self._note(f"templates[{name!r}]", pod, "a partial pod")
            return
        found[name] = pod or {}

    def selectors(self, name: str) -> tuple[Selector, ...]:
        value = self.document.get(name)
        if not isinstance(value, list | None):
            self._note(name, value, "a list of label selectors")
            return ()
        found = []
        for index, item in enumerate(value or ()):
            try:
                found.append(parse_selector(item))
            except ValueError as error:
                self.warnings.append(f"{self.source}: {name}[{index}]: {error}; it is skipped")
        return tuple(found)

    def annotations(self) -> dict[str, str]:
        found = self.pairs("injectedAnnotations")
        for name, value in found.items():
            if not isinstance(value, str):
                self._note(f"injectedAnnotations[{name!r}]", value, "text; put it in quotes")
        return {name: value for name, value in found.items() if isinstance(value, str)}

    def names(self, value: object, path: str) -> list[str]:
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._note(path, value, "a list of names")
            return []
        return [item.strip() for item in value]

    def pairs(self, name: str) -> dict[str, Any]:
        value = self.document.get(name)
        if not isinstance(value, dict | None):
            self._note(name, value, "an object")
            return {}
        return value or {}

    def _note(self, path: str, value: object, expected: str) -> None:
        self.problems.append(f"{self.source}: {path}={shown(value)}: expected {expected}")
