"""What gRPC offers under each policy: what README and warnings say of it. Source: section 2.2."""

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
FIPS_SUITES: Final = [0xC02B, 0xC02F, 0xC02C, 0xC030]  # ECDHE-{ECDSA,RSA}-AES{128,256}-GCM
TLS_1_3_SUITES: Final = [0x1301, 0x1302, 0x1303]  # the last is ChaCha20
TLS_1_2, TLS_1_3 = 0x0303, 0x0304
X25519MLKEM768, P256, P384 = 0x11EC, 0x0017, 0x0018
#: One that no policy allows.
WEAK: Final = "ECDHE-RSA-AES128-SHA"


async def offer(directory: Path, **environ: str) -> ClientHello:
    """Return what an agent offers to a control plane, as which it may also be its CA."""
    root = directory / "root.pem"
    root.write_bytes(Authority().root)
    annotations = directory / "etc/istio/pod/annotations"
    annotations.parent.mkdir(parents=True)
    annotations.write_text('status.sidecar.istio.io/port="0"\n')
    async with hello_listener() as (port, offered):
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
                "PROXY_CONFIG": f"discoveryAddress: localhost:{port}",
                **environ,
            },
            stdout=asyncio.subprocess.DEVNULL,
        )
        try:
            ended = asyncio.ensure_future(process.wait())
            await asyncio.wait((offered, ended), return_when=asyncio.FIRST_COMPLETED)
            return offered.result()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await ended


@pytest.mark.parametrize("policy", ["fips-140-2", "fips-140-3"])
async def test_of_tls_1_2_only_what_fips_allows_is_offered(tmp_path: Path, policy: str) -> None:
    hello = await offer(tmp_path, COMPLIANCE_POLICY=policy, GRPC_SSL_CIPHER_SUITES=WEAK)

    assert hello.ciphers == TLS_1_3_SUITES + FIPS_SUITES
    assert hello.versions == [TLS_1_3, TLS_1_2]
    assert {P256, P384} < set(hello.groups)


async def test_what_quanta_do_not_break_comes_first(tmp_path: Path) -> None:
    hello = await offer(tmp_path, COMPLIANCE_POLICY="pqc")

    assert hello.groups[0] == X25519MLKEM768
    assert hello.versions[0] == TLS_1_3
    assert hello.ciphers[:3] == TLS_1_3_SUITES
