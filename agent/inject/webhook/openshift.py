"""Users and groups on OpenShift, where each namespace has its own range of them.

Source: status-lifecycle.md section 11.16.
"""

import re
from collections.abc import Mapping
from typing import Final

from agent.inject.api.types import Object
from agent.inject.template.pod import PROXY, PROXY_ID

UID_RANGE: Final = "openshift.io/sa.scc.uid-range"
GROUPS: Final = "openshift.io/sa.scc.supplemental-groups"
RANGE: Final = re.compile(r"(\d{1,10})([/-])(\d{1,10})", re.ASCII)


def proxy_ids(annotations: Mapping[str, str]) -> tuple[int, int]:
    """Return the proxy's user and group in a namespace with these annotations."""
    users = annotations.get(UID_RANGE, "")
    groups = annotations.get(GROUPS, "").partition(",")[0] or users
    return _end(users), _end(groups)


def is_openshift(annotations: Mapping[str, str]) -> bool:
    """Return whether the platform assigns users in this namespace."""
    return UID_RANGE in annotations


def without_assigned_ids(spec: Object) -> Object:
    """Return the spec without ids of the user's proxy that the platform has assigned.

    They are the platform's if the last application that has any has the same.
    """
    containers = spec.get("containers", [])
    users = [
        item["securityContext"].get("runAsUser", 0)
        for item in containers
        if item.get("name") != PROXY and "securityContext" in item
    ]
    assigned = users[-1] if users else 0
    return {
        **spec,
        "containers": [
            _without_ids(item)
            if item.get("name") == PROXY
            and "securityContext" in item
            and item["securityContext"].get("runAsUser", 0) == assigned
            else item
            for item in containers
        ],
    }


def _without_ids(container: Object) -> Object:
    context = {
        name: value
        for name, value in container["securityContext"].items()
        if name not in ("runAsUser", "runAsGroup")
    }
    return {**container, "securityContext": context}


def _end(text: str) -> int:
    found = RANGE.fullmatch(text.strip())
    if not found:
        return PROXY_ID
    first, last = int(found[1]), int(found[3])
    return last if found[2] == "-" else first + last - 1
