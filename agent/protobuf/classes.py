"""Generated classes of protobuf messages by their type, each loaded when something names it.

For child processes and commands: protobuf and Envoy's types take 60 MB.
"""

import functools
import importlib
import itertools
import pkgutil
from typing import Final

from google.protobuf import descriptor_pool, message, message_factory

#: How JSON names the type of what stands in an Any.
TYPE_KEY: Final = "@type"
#: Where Envoy's types, and those in them, live. What is read must not choose what else is imported.
ROOTS: Final = (
    "cel",
    "envoy",
    "google",
    "opencensus",
    "opentelemetry",
    "udpa",
    "validate",
    "xds",
)


def message_class(type_url: str) -> type[message.Message] | None:
    """Return the class of a type, none if there is no such type."""
    name = type_url.rpartition("/")[2]
    load(name)
    try:
        descriptor = descriptor_pool.Default().FindMessageTypeByName(name)
    except KeyError:
        return None
    return message_factory.GetMessageClass(descriptor)


def load_all(content: object) -> str | None:
    """Load every type that JSON names; return one that there is not, if any."""
    children: tuple[object, ...] = ()
    if isinstance(content, dict):
        named = content.get(TYPE_KEY)
        if isinstance(named, str) and not load(named.rpartition("/")[2]):
            return named.rpartition("/")[2]
        children = tuple(content.values())
    elif isinstance(content, list):
        children = tuple(content)
    return next(filter(None, map(load_all, children)), None)


@functools.cache
def load(type_name: str) -> bool:
    """Import a type's whole package, as its name does not say which file; return if there is one.

    Args:
        type_name: with its package, as envoy.config.cluster.v3.Cluster.
    """
    parts = list(itertools.takewhile(str.islower, type_name.split(".")))
    if not parts or parts[0] not in ROOTS:
        return False
    try:
        package = importlib.import_module(".".join(parts))
    except ImportError:
        return False
    for module in pkgutil.iter_modules(getattr(package, "__path__", ())):
        if module.name.endswith("_pb2"):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return True
