"""The settings in force as JSON has them, for /debug/config; what may be a secret is masked.

The settings hold no secret by intent (style.md section 4), but users put some where only names are
expected: into headers, proxyMetadata, annotations and the environment.
"""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, Final

MASK: Final = "<masked>"
SENSITIVE: Final = (
    r"(?i)secret|passw|token|credential|authorization|bearer|cookie"
    r"|[^_]_?key$|_auth$|_pwd$|_HEADER_"
)
#: Of things that are no secret, whatever they lead to.
PLACE: Final = r"(?i)(path|file|directory|host|port|url|name|audience|seconds)$|^mounted_key$"
#: Pairs of a name and a value, sent with each request.
HEADERS: Final = frozenset(("headers", "metadata"))
#: Whole texts of others: it is enough to know whether they are there.
TEXTS: Final = frozenset(("labels_text", "annotations_text"))
#: The names say what was set; what of it the agent has read is in the rest.
NAMES_ALONE: Final = frozenset(("environ",))
USER_INFO: Final = r"(?<=://)[^/@\s]+@"
#: In a query, what belongs to a name such as token, sig, or api_key.
QUERY: Final = (
    r"(?i)([?&][^=&#\s]*(?:secret|passw|token|credential|auth|key|sig)[^=&#\s]*=)[^&#\s]+"
)


def describe(value: Any, name: str = "") -> Any:  # noqa: ANN401 -- of any setting, to JSON
    """Return a setting as JSON has it.

    Args:
        value: a branch, or one of its values.
        name: of the field or key that it is the value of.
    """
    if hasattr(value, "_asdict"):
        return describe(value._asdict(), name)
    if isinstance(value, Mapping):
        return _mapping(value, name)
    if isinstance(value, AbstractSet):
        return sorted(describe(each, name) for each in value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _sequence(value, name)
    return _leaf(value.value if isinstance(value, Enum) else value, name)


def _mapping(value: Mapping[Any, Any], name: str) -> object:
    if name in NAMES_ALONE:
        return sorted(value)
    if value.keys() == {"name", "value"}:  # a header, in JSON
        return {"name": value["name"], "value": MASK}
    return {str(key): describe(each, str(key)) for key, each in value.items()}


def _sequence(value: Sequence[Any], name: str) -> object:
    if name in HEADERS:
        return [{"name": key, "value": MASK} for key, _ in value]
    if name == "command":  # its words may hold anything
        return [*value[:1], *(MASK for _ in value[1:])]
    return [describe(each, name) for each in value]


def _leaf(value: object, name: str) -> object:
    if isinstance(value, bytes) or (name in TEXTS and isinstance(value, str)):
        return f"<{len(value)} {'bytes' if isinstance(value, bytes) else 'characters'}>"
    if isinstance(value, str):
        if value and re.search(SENSITIVE, name) and not re.search(PLACE, name):
            return MASK
        return masked(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return f"<{type(value).__name__}>"


def masked(text: str) -> str:
    """Return a text without what of the URLs in it may be a secret."""
    return re.sub(QUERY, rf"\1{MASK}", re.sub(USER_INFO, f"{MASK}@", text))
