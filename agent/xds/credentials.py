"""Which certificate files secure the connection to the control plane, and what they must hold.

Source: xds-identity-dns.md sections 2.2, 5.2 and 5.6, deviation D-5.
"""

from typing import NamedTuple

from agent.credentials import places
from agent.credentials.places import IsFile, Root
from agent.errors import AgentError
from agent.xds.settings import CredentialSettings


class ClientPair(NamedTuple):
    """The files of the client certificate; empty paths mean none."""

    chain: str = ""
    key: str = ""


def choose_root(settings: CredentialSettings, is_file: IsFile) -> Root:
    """Return the root file by the first rule that applies.

    Args:
        settings: what was configured.
        is_file: whether a path is a regular file after following links.

    Raises:
        AgentError: no file, or none where it must be; names path, rule and remedy.
    """
    root = _first_rule(settings, is_file)
    if not root.path or not is_file(root.path):
        where = root.path or "no file"
        raise AgentError(f"{where} ({root.rule}): expected the control plane's root; {root.remedy}")
    return root


def _first_rule(settings: CredentialSettings, is_file: IsFile) -> Root:
    return _configured_root(settings, is_file) or _root_of_mode(settings, is_file)


def _configured_root(settings: CredentialSettings, is_file: IsFile) -> Root | None:
    if settings.root == places.SYSTEM:
        return places.system_root("XDS_ROOT_CA=SYSTEM", is_file)
    if settings.root:
        return Root(settings.root, "XDS_ROOT_CA", "correct XDS_ROOT_CA or mount the file")
    if is_file(places.IMPLICIT_ROOT):
        return Root(places.IMPLICIT_ROOT, "mounted certificates", "replace the file")
    if settings.provisioned:
        path = f"{settings.provisioned}/{places.ROOT}"
        return Root(path, "PROV_CERT", "put the root there or set XDS_ROOT_CA")
    return None


def _root_of_mode(settings: CredentialSettings, is_file: IsFile) -> Root:
    # Without a root of their own the SPIFFE credentials must not keep the agent from starting.
    spiffe = places.has_spiffe_credentials(is_file)
    if settings.file_mounted or (spiffe and settings.mounted_root):
        return Root(
            settings.mounted_root,
            "ISTIO_META_TLS_CLIENT_ROOT_CERT of proxyMetadata, certificates are mounted",
            "correct it or set XDS_ROOT_CA",
        )
    if settings.provider == "none":
        return Root("", "PILOT_CERT_PROVIDER=none", "set XDS_ROOT_CA")
    return Root(
        places.DEFAULT_ROOT,
        f"PILOT_CERT_PROVIDER={settings.provider}",
        "mount the ConfigMap istio-ca-root-cert there or set XDS_ROOT_CA",
    )


def choose_client_pair(settings: CredentialSettings, is_file: IsFile) -> ClientPair:
    """Return the files of the client certificate, if one is configured."""
    if settings.provisioned:
        directory = settings.provisioned
        return ClientPair(f"{directory}/{places.CHAIN}", f"{directory}/{places.KEY}")
    if settings.file_mounted or places.has_spiffe_credentials(is_file):
        return ClientPair(settings.mounted_chain, settings.mounted_key)
    return ClientPair()
