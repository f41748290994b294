"""The order of containers, which is the order in which they start.

Source: status-lifecycle.md section 11.12.
"""

from collections.abc import Sequence
from typing import Final

from agent.inject.api.types import Object
from agent.inject.template.capture import INIT, VALIDATION
from agent.inject.template.pod import PROXY

CORE_DUMP: Final = "enable-core-dump"
#: First a network that works, then the proxy, then everybody else.
NATIVE_FIRST: Final = (INIT, VALIDATION, PROXY, CORE_DUMP)
#: The user's init containers have the plain network: capture comes last.
CLASSIC_FIRST: Final = (VALIDATION,)
CLASSIC_LAST: Final = (INIT, CORE_DUMP)


def order_containers(spec: Object, *, native: bool, holds_application: bool) -> None:
    """Put the containers of a spec into order, in place."""
    if containers := spec.get("containers"):
        where = {"first": (PROXY,)} if holds_application else {"last": (PROXY,)}
        spec["containers"] = _ordered(containers, **where)
    if containers := spec.get("initContainers"):
        if native:
            spec["initContainers"] = _ordered(containers, first=NATIVE_FIRST)
        else:
            spec["initContainers"] = _ordered(containers, first=CLASSIC_FIRST, last=CLASSIC_LAST)


def _ordered(
    containers: Sequence[Object], *, first: Sequence[str] = (), last: Sequence[str] = ()
) -> list[Object]:
    def rank(container: Object) -> int:
        name = container.get("name")
        if name in first:
            return first.index(name) - len(first)
        return last.index(name) + 1 if name in last else 0

    return sorted(containers, key=rank)
