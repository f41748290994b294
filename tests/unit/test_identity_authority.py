"""What is asked of the CA and taken from it. Source: xds-identity-dns.md section 6; 11.3."""

import time
import traceback
from typing import Final

import pytest
from cryptography import x509

from agent.credentials.places import DEFAULT_ROOT, IMPLICIT_ROOT
from agent.errors import SecretError
from agent.identity.authority import (
    Csr,
    Issued,
    choose_root,
    read_chain,
    read_csr,
    take_issued,
    wait_seconds,
    write_csr_request,
)
from agent.identity.csr import make_key, write_csr
from agent.identity.keys import KeySettings
from agent.identity.secret import PrivateKey
from agent.identity.settings import AuthoritySettings
from tests.fakes.ca import REQUEST, RESPONSE, Root

ROOT: Final = Root()
OTHER: Final = Root("other")
SPIFFE_ID: Final = "spiffe://cluster.local/ns/default/sa/hello"
NAMES: Final = (x509.UniformResourceIdentifier(SPIFFE_ID),)
PLAIN: Final = AuthoritySettings(())
ELLIPTIC: Final = KeySettings(SPIFFE_ID, elliptic=True)
BENT: Final = b"-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"


def make_csr() -> Csr:
    return read_csr(PrivateKey(b"".join(write_csr(make_key(ELLIPTIC), ELLIPTIC))))


CSR: Final = make_csr()


def block(content: bytes) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{content.decode()}\n-----END CERTIFICATE-----"


def sign(csr: Csr = CSR, **how: float) -> str:
    key = x509.load_pem_x509_csr(csr.request.encode()).public_key()
    return ROOT.sign(key, NAMES, **how)


def take(*chain: str, has_valid: bool = False) -> Issued:
    return take_issued(CSR, chain, now=time.time(), has_valid=has_valid)


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (b"", "no output"),
        (b"Traceback\n  line\nImportError: no such module\n", "ImportError: no such module"),
        (b"-----BEGIN EC PRIVATE KEY-----\nhush\n", "no output"),
        (b"-----BEGIN EC PRIVATE KEY-----\nhush\n" + BENT, "cannot read"),
        (b"-----BEGIN EC PRIVATE KEY-----\nhush\n" + BENT[:-20], "no output"),
        (BENT, "cannot read"),
    ],
)
def test_an_incomplete_output_never_shows_a_key(output: bytes, said: str) -> None:
    with pytest.raises(SecretError, match=said) as caught:
        read_csr(PrivateKey(output))

    frames = [frame.f_locals for frame, _ in traceback.walk_tb(caught.tb)]
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(frames[1:])  # the first is this one


def test_a_request_says_what_for_how_long_and_by_whom() -> None:
    settings = PLAIN._replace(ttl_seconds=90.5, signer="s")

    request = REQUEST.FromString(write_csr_request(settings, "csr"))

    assert (request.csr, request.validity_duration) == ("csr", 90)
    assert dict(request.metadata) == {"CertSigner": "s"}


def test_the_signer_is_sent_even_if_it_is_empty() -> None:
    request = REQUEST.FromString(write_csr_request(PLAIN, "csr"))

    assert dict(request.metadata) == {"CertSigner": ""}


def test_the_elements_of_the_answer_are_read() -> None:
    assert read_chain(RESPONSE(cert_chain=["a", "b"]).SerializeToString()) == ["a", "b"]
    assert read_chain(b"") == []


def test_a_good_answer_is_taken() -> None:
    leaf = sign()

    issued = take(leaf.strip(), OTHER.pem, ROOT.pem)

    assert issued.chain.decode() == leaf + OTHER.pem + ROOT.pem
    assert issued.roots.decode() == ROOT.pem
    assert issued.key is CSR.key
    assert issued.leaf.names == (f"URI:{SPIFFE_ID}",)


@pytest.mark.parametrize(
    ("chain", "problem"),
    [
        ((), "invalid empty CertChain"),
        ((sign(),), "invalid empty CertChain"),
        (("nonsense", ROOT.pem), "cannot be read"),
        ((sign(), "nonsense", ROOT.pem, ROOT.pem[:-9], ROOT.pem), "chain cannot be read: expected"),
        ((sign(), block(b"MAA="), ROOT.pem), "chain cannot be read: certificate ends too early"),
        ((ROOT.pem, sign()), "wrong key, or a chain that does not begin with the leaf"),
        ((sign(make_csr()), ROOT.pem),
         "not for the key it was asked for"),
        ((sign(seconds=-5), ROOT.pem), "issued a certificate that expired"),
        ((sign(), "nonsense"), "no root certificate"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("has_valid", [False, True])
def test_a_bad_answer_is_refused(chain: tuple[str, ...], problem: str, *, has_valid: bool) -> None:
    with pytest.raises(SecretError, match=problem):
        take(*chain, has_valid=has_valid)


def test_a_certificate_for_later_is_better_than_none() -> None:
    """Perhaps it is our clock that is wrong."""
    chain = (sign(starts_in=600), ROOT.pem)

    assert take(*chain).leaf.not_before > time.time()
    with pytest.raises(SecretError, match=r"not valid for another [56]"):
        take(*chain, has_valid=True)


@pytest.mark.parametrize(
    ("settings", "files", "path"),
    [
        (PLAIN, {DEFAULT_ROOT, IMPLICIT_ROOT}, DEFAULT_ROOT),
        (PLAIN._replace(root="/x"), {"/x"}, "/x"),
        (PLAIN._replace(root="SYSTEM"), {"/etc/ssl/cert.pem"}, "/etc/ssl/cert.pem"),
        (PLAIN._replace(root_provider="custom"), {DEFAULT_ROOT, IMPLICIT_ROOT}, IMPLICIT_ROOT),
        (PLAIN._replace(provisioned="/p"), {"/p/root-cert.pem"}, "/p/root-cert.pem"),
    ],
)
def test_the_first_rule_that_applies_gives_the_root(
    settings: AuthoritySettings, files: set[str], path: str
) -> None:
    """Section 6.2; other than for the control plane's, mounted certificates say nothing."""
    assert choose_root(settings, files.__contains__).path == path


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (PLAIN, f"{DEFAULT_ROOT} .PILOT_CERT_PROVIDER=istiod.: .*istio-ca-root-cert"),
        (PLAIN._replace(root="/x"), "/x .CA_ROOT_CA.: expected the CA's root; correct"),
        (PLAIN._replace(root="SYSTEM"), "no file .CA_ROOT_CA=SYSTEM.: .*ca-certificates"),
        (PLAIN._replace(root_provider="none"), "no file .PILOT_CERT_PROVIDER=none.: .*set CA_ROOT"),
        (PLAIN._replace(provisioned="/p"), "/p/root-cert.pem .PROV_CERT.: .*set CA_ROOT_CA"),
    ],
)
def test_a_missing_root_names_path_rule_and_remedy(
    settings: AuthoritySettings, problem: str
) -> None:
    with pytest.raises(SecretError, match=problem):
        choose_root(settings, set[str]().__contains__)


@pytest.mark.parametrize(
    ("addresses", "waits"),
    [(1, [0.1, 0.2, 0.4, 0.8]), (2, [0, 0.1, 0, 0.2]), (3, [0, 0, 0.1, 0])],
)
def test_every_address_is_asked_before_there_is_any_wait(
    addresses: int, waits: list[float]
) -> None:
    found = [wait_seconds(attempt, addresses, 0.5) for attempt in range(1, 5)]

    assert found == pytest.approx(waits)
    assert wait_seconds(1, 1, 0.0) == pytest.approx(0.09)
    assert wait_seconds(1, 1, 1.0) == pytest.approx(0.11)
