"""Where certificates come from. Source: xds-identity-dns.md sections 4.2 and 5.2."""

import pytest

from agent.errors import SettingsError
from agent.identity.keys import KeySettings
from agent.identity.modes import (
    FILES_SOCKET,
    OWN_SOCKET,
    Mode,
    choose_mode,
    needs_certificate,
    reads_back,
)
from agent.identity.names import FileResource
from agent.identity.settings import AuthoritySettings, IdentitySettings, OutputSettings

PLAIN = IdentitySettings(KeySettings("spiffe://td/ns/ns/sa/sa"), AuthoritySettings(()))
SPIFFE = "./var/run/secrets/workload-spiffe-credentials"
SPIFFE_FILES = {f"{SPIFFE}/{name}" for name in ("cert-chain.pem", "key.pem", "root-cert.pem")}
GKE_NAMES = ("certificates.pem", "private_key.pem", "ca_certificates.pem")
GKE_FILES = {f"{SPIFFE}/{name}" for name in GKE_NAMES}
IMPLICIT = Mode(
    OWN_SOCKET,
    FileResource("./etc/certs/cert-chain.pem", "./etc/certs/key.pem"),
    FileResource("./etc/certs/root-cert.pem"),
    has_authority=True,
)
MOUNTED = IMPLICIT._replace(
    pair=FileResource(f"{SPIFFE}/cert-chain.pem", f"{SPIFFE}/key.pem"),
    root=FileResource(f"{SPIFFE}/root-cert.pem"),
    has_authority=False,
)
GKE = IMPLICIT._replace(
    pair=FileResource(f"{SPIFFE}/certificates.pem", f"{SPIFFE}/private_key.pem"),
    root=FileResource(f"{SPIFFE}/ca_certificates.pem"),
    has_authority=False,
)


@pytest.mark.parametrize(
    ("settings", "files", "expected"),
    [
        (PLAIN, set(), IMPLICIT),
        (PLAIN._replace(file_mounted=True), set(), IMPLICIT._replace(has_authority=False)),
        (PLAIN, SPIFFE_FILES, MOUNTED),
        (PLAIN, SPIFFE_FILES - {f"{SPIFFE}/key.pem"}, IMPLICIT),
        (PLAIN._replace(file_mounted=True, gke=True), GKE_FILES, GKE),
    ],
)
def test_what_is_mounted_decides(
    settings: IdentitySettings, files: set[str], expected: Mode
) -> None:
    """T-A10."""
    assert choose_mode(settings, files_only=False, is_file=files.__contains__) == expected
    assert expected.directory == expected.pair.certificate.rpartition("/")[0]


@pytest.mark.parametrize("gke", [False, True])
def test_beside_another_server_only_files_are_served(gke: bool) -> None:  # noqa: FBT001 - a parameter
    settings = PLAIN._replace(gke=gke, file_mounted=gke)

    mode = choose_mode(settings, files_only=True, is_file=SPIFFE_FILES.__contains__)

    assert mode == IMPLICIT._replace(socket_path=FILES_SOCKET, has_authority=False, files_only=True)


def test_missing_files_of_gke_are_named() -> None:
    settings = PLAIN._replace(file_mounted=True, gke=True)
    there = GKE_FILES - {f"{SPIFFE}/private_key.pem"}

    with pytest.raises(SettingsError, match=r"private_key\.pem is missing: mount"):
        choose_mode(settings, files_only=False, is_file=there.__contains__)


@pytest.mark.parametrize(
    ("mode", "settings", "files", "expected"),
    [
        (IMPLICIT, PLAIN, set(), True),
        (IMPLICIT, PLAIN, {"./etc/certs/cert-chain.pem", "./etc/certs/key.pem"}, False),
        (IMPLICIT, PLAIN, {"./etc/certs/cert-chain.pem"}, True),
        (MOUNTED, PLAIN, set(), False),
        (IMPLICIT, PLAIN._replace(warm_up=False), set(), False),
    ],
)
def test_the_ca_is_asked_early_only_if_it_will_be_asked(
    mode: Mode,
    settings: IdentitySettings,
    files: set[str],
    expected: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    assert needs_certificate(mode, settings, files.__contains__) is expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [(None, False), ("/etc/certs", True), ("./etc/certs/", True), ("/other", False)],
)
def test_an_agent_does_not_read_back_what_it_writes(
    output: str | None,
    expected: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    settings = PLAIN._replace(output=OutputSettings(output) if output else None)

    def real_path(path: str) -> str:
        return path.strip("./")

    assert reads_back(IMPLICIT, settings, real_path) is expected
