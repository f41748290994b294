"""Label selectors of Kubernetes.

Source: status-lifecycle.md sections 11.2 and 11.15.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

NAME: Final = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)"
KEY: Final = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{NAME}")
VALUE: Final = re.compile(rf"(?:{NAME})?")


class Requirement(NamedTuple):
    """One condition on a label."""

    key: str
    operator: str  #: In, NotIn, Exists or DoesNotExist
    values: tuple[str, ...] = ()


class Selector(NamedTuple):
    """Conditions that must all hold; without any it selects everything."""

    requirements: tuple[Requirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether there is no condition."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        return all(_holds(requirement, labels) for requirement in self.requirements)


def parse_selector(value: object) -> Selector:
    """Return the selector that an object with matchLabels and matchExpressions is.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, dict):
        raise ValueError("expected an object with matchLabels or matchExpressions")  # noqa: TRY004 - one error for all
    labels, expressions = value.get("matchLabels") or {}, value.get("matchExpressions") or []
    if not isinstance(labels, dict) or not isinstance(expressions, list):
        raise ValueError("expected matchLabels to be an object and matchExpressions a list")  # noqa: TRY004 - one error for all
    found = [Requirement(_key(key), "In", (_value(labels[key]),)) for key in labels]
    return Selector((*found, *(_requirement(item) for item in expressions)))


def _requirement(item: object) -> Requirement:
    if not isinstance(item, dict):
        raise ValueError("expected a condition with key, operator and values")  # noqa: TRY004 - one error for all
    operator, values = item.get("operator"), item.get("values") or []
    if not isinstance(values, list):
        raise ValueError("expected values to be a list")  # noqa: TRY004 - one error for all
    if operator in ("In", "NotIn"):
        if not values:
            raise ValueError(f"expected values for operator {operator}")
    elif operator not in ("Exists", "DoesNotExist"):
        raise ValueError(f"operator={operator!r}: expected In, NotIn, Exists or DoesNotExist")
    elif values:
        raise ValueError(f"expected no values for operator {operator}")
    return Requirement(_key(item.get("key")), str(operator), tuple(map(_value, values)))


def _key(key: object) -> str:
    if not isinstance(key, str) or not KEY.fullmatch(key):
        raise ValueError(f"key={key!r}: expected the name of a label")
    return key


def _value(value: object) -> str:
    if not isinstance(value, str) or not VALUE.fullmatch(value):
        raise ValueError(f"value={value!r}: expected the value of a label; put it in quotes")
    return value


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case _:
            return value is None
