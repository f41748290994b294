"""What a template is rendered from.

Source: status-lifecycle.md sections 11.3 and 11.4.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, cast

from agent.inject.annotations import INTERCEPTION_MODE, STATUS_PORT
from agent.inject.api.types import Object
from agent.inject.mesh import Mesh
from agent.inject.owner import Owner
from agent.inject.values import Values

PROXY: Final = "istio-proxy"
#: User and group of the proxy.
PROXY_ID: Final = 1337


class Settings(NamedTuple):
    """What is the same for every pod."""

    values: Values
    mesh: Mesh
    #: The injector's own; '' for the default one.
    revision: str = ""


class TemplatePod(NamedTuple):
    """The pod as templates see it: without what an earlier injection added."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Object
    owner: Owner
    #: Of the proxy, as canonical proto JSON without zeros.
    proxy_config: Mapping[str, object]
    settings: Settings
    native: bool = False
    user: int = PROXY_ID
    group: int = PROXY_ID

    @property
    def values(self) -> Values:
        """Return the mesh's values."""
        return self.settings.values

    @property
    def mesh(self) -> Mesh:
        """Return the mesh configuration."""
        return self.settings.mesh

    def annotation(self, name: str, default: str) -> str:
        """Return an annotation, the default where there is none; it may be there and empty."""
        return self.annotations.get(name, default)

    @property
    def status_port(self) -> str:
        """Return the port of the agent's status server as configured; '0' for none."""
        return self.annotation(STATUS_PORT, str(self.values.proxy.status_port)).strip()

    @property
    def configured_mode(self) -> str:
        """Return the interception mode of the proxy configuration."""
        return cast("str", self.proxy_config.get("interceptionMode", "REDIRECT"))

    @property
    def interception_mode(self) -> str:
        """Return how the pod's traffic is captured."""
        return self.annotation(INTERCEPTION_MODE, self.configured_mode)

    @property
    def proxy_metadata(self) -> list[tuple[str, str]]:
        """Return the variables that the proxy configuration asks for, sorted."""
        metadata = cast("Mapping[str, str]", self.proxy_config.get("proxyMetadata", {}))
        return sorted(metadata.items())

    @property
    def holds_application(self) -> bool:
        """Return whether the application waits for the proxy, as a container beside it."""
        asked = self.proxy_config.get("holdApplicationUntilProxyStarts")
        return not self.native and (bool(asked) or self.values.proxy.hold_application)

    @property
    def applications(self) -> list[str]:
        """Return the names of the containers that are not the proxy's."""
        names = (str(item.get("name", "")) for item in self.spec.get("containers", ()))
        return [name for name in names if name != PROXY]


Template = Callable[[TemplatePod], Object]
