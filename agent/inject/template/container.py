"""What the containers that are injected have in common: image and resources.

Source: status-lifecycle.md sections 11.7 and 11.8.
"""

from typing import Final, cast

from agent.inject.annotations import PROXY_RESOURCES
from agent.inject.api.types import Object
from agent.inject.template.pod import TemplatePod

IMAGE: Final = "sidecar.istio.io/proxyImage"
IMAGE_TYPE: Final = "sidecar.istio.io/proxyImageType"
#: Types that a tag may already end in.
TYPES: Final = ("distroless", "debug")
DEFAULT_TYPE: Final = "default"


def proxy_image(pod: TemplatePod) -> str:
    """Return the image of the proxy's container."""
    image = cast("dict[str, str]", pod.proxy_config.get("image", {}))
    return _image(pod, pod.values.proxy.image, image.get("imageType", ""))


def init_image(pod: TemplatePod) -> str:
    """Return the image of the container that sets traffic capture up."""
    return _image(pod, pod.values.init_image, "")


def pull_policy(pod: TemplatePod) -> Object:
    """Return when the image is pulled, if that is said."""
    policy = pod.values.image_pull_policy
    return {"imagePullPolicy": policy} if policy else {}


def proxy_resources(pod: TemplatePod) -> Object:
    """Return the resources that annotations ask for, and only those; else the mesh's."""
    asked: Object = {}
    for annotation, (group, name) in PROXY_RESOURCES.items():
        if annotation in pod.annotations:
            asked.setdefault(group, {})[name] = pod.annotations[annotation]
    return asked or pod.values.proxy.resources


def _image(pod: TemplatePod, configured: str, configured_type: str) -> str:
    chosen = pod.annotation(IMAGE, configured)
    if "/" in chosen:
        return chosen
    kind = pod.annotations.get(IMAGE_TYPE) or configured_type or pod.values.variant
    tag = pod.values.tag
    if kind:
        for known in TYPES:
            tag = tag.removesuffix(f"-{known}")
        if kind != DEFAULT_TYPE:
            tag += f"-{kind}"
    name = "/".join(part for part in (pod.values.hub, configured) if part)
    return f"{name}:{tag}" if tag else name
