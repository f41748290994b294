"""A CA behind an HTTP proxy, which its connection shares with the control plane's. Section 2.3."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agent.credentials.settings import TokenSettings
from agent.errors import SecretError
from agent.identity.client import CertificateAuthority
from agent.identity.settings import Address, AuthoritySettings
from agent.metrics import Metrics
from tests.fakes.ca import CsrCall, fake_ca
from tests.fakes.tunnels import tunnels

CHAIN = ["a leaf\n", "a root\n"]
CSR = (
    x509.CertificateSigningRequestBuilder(x509.Name([]))
    .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    .public_bytes(serialization.Encoding.PEM)
    .decode()
)
#: A name that only the proxy knows.
TARGET = "istiod.example:15012"


def respond(_: CsrCall) -> list[str]:
    return CHAIN


def client(directory: Path, proxy: str) -> CertificateAuthority:
    address = Address(TARGET, "istiod", tls=False, send_token=True, proxy=proxy)
    settings = AuthoritySettings((address,), token=TokenSettings(str(directory / "token")))
    return CertificateAuthority(settings, count=Metrics().count, rng=lambda: 0.0, call_seconds=5)


async def test_the_ca_is_asked_through_the_proxy(tmp_path: Path) -> None:
    async with fake_ca(respond, tmp_path) as ca, tunnels(ca.address) as (port, heads):
        chain = await client(tmp_path, f"http://127.0.0.1:{port}").sign(CSR, None)

    assert chain == CHAIN
    assert heads[0].startswith(f"CONNECT {TARGET} HTTP/1.1\r\n")


async def test_a_proxy_for_web_pages_does_not_lead_to_the_ca(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with fake_ca(respond, tmp_path) as ca, tunnels(ca.address) as (port, heads):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(SecretError, match="UNAVAILABLE"):
            await client(tmp_path, "").sign(CSR, None)

    assert heads == []
