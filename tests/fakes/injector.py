"""The injector as a process, its certificate, and the API server's side of it."""

import asyncio
import io
import json
import re
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.fakes.ca import Root

PEM = serialization.Encoding.PEM


class Keys:
    """Certificates for localhost in a directory, and what a client needs to trust them."""

    def __init__(self, directory: Path) -> None:
        self.root = Root()
        self.certificate = directory / "tls.crt"
        self.key = directory / "tls.key"
        self.renew()

    def renew(self) -> int:
        """Write another pair; return its serial number."""
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = self.root.sign(key.public_key(), [x509.DNSName("localhost")])
        self.key.write_bytes(
            key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        self.certificate.write_text(leaf)
        return x509.load_pem_x509_certificate(leaf.encode()).serial_number

    def client(self) -> ssl.SSLContext:
        """Return what a client verifies by."""
        return ssl.create_default_context(cadata=self.root.pem)


def make_review(pod: object, **request: object) -> dict[str, Any]:
    """Return a review of a pod."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u-1", "namespace": "prod", "object": pod, **request},
    }


class Client:
    """The API server's side."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self.session = session
        self.address = address

    async def review(self, pod: object, path: str = "/inject", **request: object) -> Any:  # noqa: ANN401 - JSON
        """Return the response to a review of a pod."""
        return (await self.post(json.dumps(make_review(pod, **request)), path))[1]["response"]

    async def post(
        self, body: str | bytes, path: str = "/inject", content_type: str = "application/json"
    ) -> tuple[int, Any]:
        """Return the status and the answer, JSON where it is."""
        headers = {"Content-Type": content_type}
        data = io.BytesIO(body.encode() if isinstance(body, str) else body)
        async with self.session.post(self.address + path, data=data, headers=headers) as reply:
            text = await reply.text()
            return reply.status, json.loads(text) if reply.content_type.endswith("json") else text

    async def get(self, path: str) -> tuple[int, str]:
        """Return the status and the body."""
        async with self.session.get(self.address + path) as reply:
            return reply.status, await reply.text()


@asynccontextmanager
async def client(port: int, tls: ssl.SSLContext | bool = True) -> AsyncIterator[Client]:  # noqa: FBT001, FBT002 - aiohttp's own
    """Yield a client; connections are not kept, so that each has its own handshake."""
    scheme = "https" if isinstance(tls, ssl.SSLContext) else "http"
    connector = aiohttp.TCPConnector(ssl=tls, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Client(session, f"{scheme}://localhost:{port}")


class Process:
    """A running injector."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def until(self, pattern: str) -> re.Match[str]:
        """Return the first line of the log from here on that matches."""
        assert self.process.stdout
        async with asyncio.timeout(10):
            while line := (await self.process.stdout.readline()).decode():
                self.lines.append(line)
                if found := re.search(pattern, line):
                    return found
        raise AssertionError(f"{pattern!r} is not in {self.lines}")


@asynccontextmanager
async def running(keys: Keys, *words: str, **environ: str) -> AsyncIterator[tuple[Process, int]]:
    """Yield an injector that is ready, and its port."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "agent", "injector", "--address", "localhost", "--port", "0"),
        *("--monitoring-port", "0", "--drain", "0.2s", "--native-sidecars", "true"),
        *("--tlsCertFile", str(keys.certificate), "--tlsKeyFile", str(keys.key)),
        *words,
        env={"PATH": "/usr/bin:/bin", **environ},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    found = Process(process)
    try:
        port = int((await found.until(r"listening port=(\d+)"))[1])
        await found.until(r"\tready")
        yield found, port
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
