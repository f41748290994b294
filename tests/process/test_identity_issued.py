"""Certificates from a CA, over TLS, to Envoy's socket. Source: sections 4.7, 5.3 and 6; 11.3."""

import asyncio
import datetime as dt
from pathlib import Path
from typing import Final

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from agent.identity.settings import OutputSettings, RotationSettings
from tests.fakes.ca import CsrCall, FakeCa, RefusedError, Root, fake_ca, write_files
from tests.fakes.control_plane import Authority
from tests.fakes.identity import SPIFFE_ID, mode, serving_identity, settings

AUTHORITY: Final = Authority("ca")
ROOT: Final = Root()


def prepare(directory: Path) -> None:
    """Write what is mounted into every pod: the CA's root and the token."""
    (directory / "ca-root.pem").write_bytes(AUTHORITY.root)
    (directory / "token").write_text("secret\n")


async def test_key_chain_and_roots_are_served(tmp_path: Path) -> None:
    """T-A1, T-K1, T-K3."""
    prepare(tmp_path)
    async with fake_ca(ROOT.answer, tmp_path / "ca", authority=AUTHORITY) as ca:
        chosen = settings(tmp_path, ca, authority={"signer": "clusterissuers/x"})
        async with serving_identity(chosen, mode(tmp_path)) as bench:
            call = bench.client.open()
            reply = await call.fetch("default", "ROOTCA")

    leaf = x509.load_pem_x509_certificate(reply.chain())
    key = serialization.load_pem_private_key(reply.key(), None)
    assert key.public_key() == leaf.public_key()
    assert reply.chain().decode().endswith(ROOT.pem)
    assert reply.roots().decode() == ROOT.pem.strip()
    (asked,) = ca.calls
    assert asked.token == "secret"
    assert asked.metadata["clusterid"] == "Kubernetes"
    assert asked.ttl_seconds == 86400
    assert asked.signer == "clusterissuers/x"
    assert bench.metric('num_outgoing_requests{request_type="csr"}') == 1
    left = bench.metric('cert_expiry_seconds{resource_name="default"}')
    assert left is not None
    assert 86300 < left <= 86401
    assert SPIFFE_ID in str(bench.identity.document())
