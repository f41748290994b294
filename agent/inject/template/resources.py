"""What the injected containers may use.

Source: status-lifecycle.md section 11.8.
"""

from agent.inject.annotations import PROXY_RESOURCES
from agent.inject.api.types import Object
from agent.inject.template.pod import TemplatePod


def proxy_resources(pod: TemplatePod) -> Object:
    """Return the resources that annotations ask for, and only those; else the mesh's."""
    asked: Object = {}
    for annotation, (group, name) in PROXY_RESOURCES.items():
        if annotation in pod.annotations:
            asked.setdefault(group, {})[name] = pod.annotations[annotation]
    return asked or pod.values.proxy.resources
