"""What is built here, for `version`, the first log line and the node's metadata.

Source: bootstrap.md section 1.7.
"""

import json
import sys
from typing import Final, NamedTuple

#: Of this package, as in pyproject.toml.
AGENT_VERSION: Final = "0.1.0"
#: The release's tag. It is the revision, too: a build outside of a repository knows no other name.
TAG: Final = f"mesh-agent-{AGENT_VERSION}"


class Build(NamedTuple):
    """The five facts that the reference reports."""

    #: The Istio release whose data-plane behaviour is implemented. It becomes ISTIO_VERSION of the
    #: node, on which istiod decides what it may send; one it cannot parse counts as the newest.
    version: str
    revision: str
    #: The reference names its compiler here.
    golang_version: str
    status: str
    tag: str


BUILD: Final = Build(
    version="1.31.0",
    revision=TAG,
    golang_version=f"python{sys.version.partition(' ')[0]}",
    status="unknown",
    tag=TAG,
)


def version_line(build: Build = BUILD) -> str:
    """Return `<version>-<revision>-<status>`: in the log, at /debug/config and on the page.

    Source: bootstrap.md section 1.4.
    """
    return f"{build.version}-{build.revision}-{build.status}"


def version_text(output: str, *, short: bool, build: Build = BUILD) -> str:
    """Return what `version` prints, without the last line end.

    Args:
        output: `json`, `yaml`, or empty for one line of text.
        short: leave all but the version out of the line of text.
        build: what to report.

    Raises:
        ValueError: the output is none of these.
    """
    if output == "json":
        return json.dumps({"clientVersion": build._asdict()}, indent=2)
    if output == "yaml":
        fields = sorted(build._asdict().items())
        return "\n".join(("clientVersion:", *(f"  {key}: {value}" for key, value in fields)))
    if output:
        raise ValueError("--output must be 'yaml' or 'json'")
    if short:
        return f"client version: {build.version}"
    return (
        f'client version: version.BuildInfo{{Version:"{build.version}", '
        f'GitRevision:"{build.revision}", GolangVersion:"{build.golang_version}", '
        f'BuildStatus:"{build.status}", GitTag:"{build.tag}"}}'
    )
