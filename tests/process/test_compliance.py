"""What an agent offers to the control plane and the CA under each policy. Source: section 2.2."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.fakes.client_hello import ClientHello, hello_listener
from tests.fakes.control_plane import Authority

ROOT: Final = Path(__file__).parents[2]
FIPS_CIPHERS: Final = {0xC02B, 0xC02F, 0xC02C, 0xC030}  # ECDHE-{ECDSA,RSA}-AES{128,256}-GCM
AES_GCM: Final = {0x1301, 0x1302}
RENEGOTIATION_INFO: Final = 0x00FF  # stands among the ciphers, and is none
TLS_1_2, TLS_1_3 = 0x0303, 0x0304
X25519MLKEM768, P256, P384 = 0x11EC, 0x0017, 0x0018


async def offers(directory: Path, **environ: str) -> tuple[ClientHello, ClientHello]:
    """Return what an agent offers to a control plane, and to its CA."""
    root = directory / "root.pem"
    root.write_bytes(Authority().root)
    annotations = directory / "etc/istio/pod/annotations"
    annotations.parent.mkdir(parents=True)
    annotations.write_text('status.sidecar.istio.io/port="0"\n')
    async with hello_listener() as (port, offered), hello_listener() as (ca_port, ca_offered):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "agent", "proxy", "sidecar"),
            cwd=directory,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "POD_NAME": "web",
                "POD_NAMESPACE": "shop",
                "DISABLE_ENVOY": "true",
                "GRPC_XDS_BOOTSTRAP": "",
                "XDS_ROOT_CA": str(root),
                "CA_ROOT_CA": str(root),
                "CA_ADDR": f"localhost:{ca_port}",
                "PROXY_CONFIG": f"discoveryAddress: localhost:{port}",
                **environ,
            },
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            ended = asyncio.ensure_future(process.wait())
            both = asyncio.gather(offered, ca_offered)
            await asyncio.wait((both, ended), return_when=asyncio.FIRST_COMPLETED)
            return both.result()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await ended


@pytest.mark.parametrize(
    ("policy", "ciphers", "groups", "versions"),
    [
        # In TLS 1.2 versions are no list of their own.
        ("fips-140-2", FIPS_CIPHERS, {P256}, set()),
        ("fips-140-3", FIPS_CIPHERS | AES_GCM, {P256, P384}, {TLS_1_2, TLS_1_3}),
        ("pqc", AES_GCM, {X25519MLKEM768}, {TLS_1_3}),
    ],
)
async def test_what_a_policy_allows_is_offered_and_nothing_else(
    tmp_path: Path, policy: str, ciphers: set[int], groups: set[int], versions: set[int]
) -> None:
    for hello in await offers(tmp_path, COMPLIANCE_POLICY=policy):
        assert set(hello.ciphers) - {RENEGOTIATION_INFO} == ciphers
        assert set(hello.groups) == groups
        assert set(hello.versions) == versions
        assert hello.server_name == "istiod.istio-system.svc"
        assert hello.protocols == ["h2"]
