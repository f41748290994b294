"""Which files secure the connection. Source: xds-identity-dns.md section 2.2."""

import pytest

from agent.credentials.places import DEFAULT_ROOT, IMPLICIT_ROOT, SPIFFE_DIRECTORY
from agent.errors import AgentError
from agent.xds.credentials import ClientPair, choose_client_pair, choose_root
from agent.xds.settings import CredentialSettings

SPIFFE = {f"{SPIFFE_DIRECTORY}/{name}.pem" for name in ("cert-chain", "key", "root-cert")}
PLAIN = CredentialSettings()
PROVISIONED = CredentialSettings(provisioned="/prov")
MOUNTED = CredentialSettings(
    file_mounted=True, mounted_root="/r", mounted_chain="/c", mounted_key="/k"
)


@pytest.mark.parametrize(
    ("settings", "files", "path"),
    [
        (PLAIN, {DEFAULT_ROOT}, DEFAULT_ROOT),
        (PLAIN, {DEFAULT_ROOT, IMPLICIT_ROOT}, IMPLICIT_ROOT),
        (CredentialSettings(root="/x"), {"/x", IMPLICIT_ROOT}, "/x"),
        (
            CredentialSettings(root="SYSTEM"),
            {"/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"},
            "/etc/ssl/ca-bundle.pem",
        ),
        (PROVISIONED, {"/prov/root-cert.pem"}, "/prov/root-cert.pem"),
        (PROVISIONED, {"/prov/root-cert.pem", IMPLICIT_ROOT}, IMPLICIT_ROOT),
        (MOUNTED, {"/r", DEFAULT_ROOT}, "/r"),
        (PLAIN._replace(mounted_root="/r"), SPIFFE | {"/r"}, "/r"),
        # D-5: without more settings these credentials do not keep the agent from starting.
        (PLAIN, SPIFFE | {DEFAULT_ROOT}, DEFAULT_ROOT),
    ],
)
def test_the_first_rule_that_applies_gives_the_root(
    settings: CredentialSettings, files: set[str], path: str
) -> None:
    assert choose_root(settings, files.__contains__).path == path


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (PLAIN, (DEFAULT_ROOT, "PILOT_CERT_PROVIDER=istiod", "istio-ca-root-cert")),
        (CredentialSettings(root="/x"), ("/x", "XDS_ROOT_CA", "correct XDS_ROOT_CA")),
        (CredentialSettings(root="SYSTEM"), ("no file", "XDS_ROOT_CA=SYSTEM", "ca-certificates")),
        (PROVISIONED, ("/prov/root-cert.pem", "PROV_CERT", "set XDS_ROOT_CA")),
        (MOUNTED, ("/r", "ISTIO_META_TLS_CLIENT_ROOT_CERT", "set XDS_ROOT_CA")),
        (CredentialSettings(provider="none"), ("no file", "PILOT_CERT_PROVIDER=none", "set")),
    ],
)
def test_a_missing_root_names_path_rule_and_remedy(
    settings: CredentialSettings, parts: tuple[str, ...]
) -> None:
    with pytest.raises(AgentError) as caught:
        choose_root(settings, set[str]().__contains__)

    assert all(part in str(caught.value) for part in parts)


@pytest.mark.parametrize(
    ("settings", "files", "pair"),
    [
        (PLAIN, set(), ClientPair()),
        (PROVISIONED, set(), ClientPair("/prov/cert-chain.pem", "/prov/key.pem")),
        (MOUNTED, set(), ClientPair("/c", "/k")),
        (MOUNTED._replace(file_mounted=False), SPIFFE, ClientPair("/c", "/k")),
        (MOUNTED._replace(file_mounted=False), set(), ClientPair()),
    ],
)
def test_the_client_certificate_comes_from_where_it_is_mounted(
    settings: CredentialSettings, files: set[str], pair: ClientPair
) -> None:
    assert choose_client_pair(settings, files.__contains__) == pair
