"""Where this workload's certificates come from, decided once at start.

Source: xds-identity-dns.md sections 4.2 and 5.2.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from agent.credentials import places
from agent.credentials.places import IsFile
from agent.errors import SettingsError
from agent.identity.names import FileResource
from agent.identity.settings import GKE, IdentitySettings

OWN_SOCKET: Final = "./var/run/secrets/workload-spiffe-uds/socket"
FILES_SOCKET: Final = "./var/run/secrets/credential-uds/files-socket"
#: Names of chain, key and root in GKE's directory of workload certificates.
GKE_FILES: Final = ("certificates.pem", "private_key.pem", "ca_certificates.pem")


class Mode(NamedTuple):
    """Who provides the workload's certificate, and where Envoy finds it."""

    #: What this agent's SDS server listens on.
    socket_path: str
    #: Files that come first as long as they are there.
    pair: FileResource
    root: FileResource
    #: Whether a CA may be asked.
    has_authority: bool
    #: Another SDS server is in charge; ours serves other files.
    files_only: bool = False

    @property
    def directory(self) -> str:
        """The directory of the chain."""
        return self.pair.certificate.rpartition("/")[0]


def choose_mode(settings: IdentitySettings, *, files_only: bool, is_file: IsFile) -> Mode:
    """Return the mode.

    Args:
        settings: what was configured.
        files_only: whether somebody else's SDS server is in charge of the workload's identity.
        is_file: whether a path is a regular file after following links.

    Raises:
        SettingsError: files that must be there are not.
    """
    spiffe = places.has_spiffe_credentials(is_file) and not files_only
    directory, names = places.IMPLICIT_DIRECTORY, (places.CHAIN, places.KEY, places.ROOT)
    if settings.gke and not files_only:
        directory, names = places.SPIFFE_DIRECTORY, GKE_FILES
        missing = [name for name in names if not is_file(f"{directory}/{name}")]
        if missing:
            where = f"{directory}/{missing[0]}"
            raise SettingsError(
                [f"CA_PROVIDER={GKE}: {where} is missing: mount the workload's certificates there"]
            )
    elif spiffe:
        directory = places.SPIFFE_DIRECTORY
    chain, key, root = (f"{directory}/{name}" for name in names)
    return Mode(
        socket_path=FILES_SOCKET if files_only else OWN_SOCKET,
        pair=FileResource(chain, key),
        root=FileResource(root),
        has_authority=not (settings.file_mounted or spiffe or files_only),
        files_only=files_only,
    )


def needs_certificate(mode: Mode, settings: IdentitySettings, is_file: IsFile) -> bool:
    """Return whether the CA is asked as soon as the agent starts, as far as files tell."""
    mounted = is_file(mode.pair.certificate) and is_file(mode.pair.key)
    return mode.has_authority and settings.warm_up and not mounted


def reads_back(mode: Mode, settings: IdentitySettings, real_path: Callable[[str], str]) -> bool:
    """Return whether the directory of mounted certificates is the one that the agent writes to.

    Its files are then the agent's own: it would read back what it has written, and never renew it.
    """
    if settings.output is None:
        return False
    return real_path(settings.output.directory) == real_path(mode.directory)
