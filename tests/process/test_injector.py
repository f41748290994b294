"""`agent injector` as a process: real HTTPS, signals and files.

Source: status-lifecycle.md section 11.1.
"""

import asyncio
import base64
import json
import signal
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from agent.inject.webhook.files import Followed
from tests.fakes.injection import make_pod, variable
from tests.fakes.injector import Keys, client, make_review, running
from tests.fakes.json_patch import apply
from tests.waiting import LOOK_SECONDS, until


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


async def serial(port: int, tls: ssl.SSLContext) -> int:
    """Return the serial number of the certificate that a handshake shows."""
    _, writer = await asyncio.open_connection("localhost", port, ssl=tls)
    shown: ssl.SSLObject = writer.get_extra_info("ssl_object")
    found = shown.getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    assert found
    return x509.load_der_x509_certificate(found).serial_number


async def until_refused(port: int) -> None:
    """Return once nobody listens any more, at no address of localhost."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("localhost", port)
            except OSError:  # ConnectionRefusedError, or one for several of them
                return
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            await asyncio.sleep(LOOK_SECONDS)


@pytest.mark.slow
async def test_a_review_is_answered_over_https(keys: Keys) -> None:
    pod = make_pod()
    async with running(keys) as (process, port), client(port, keys.client()) as server:
        response = await server.review(pod, "/inject/cluster/east/net/one")

        process.process.send_signal(signal.SIGTERM)
        assert await process.process.wait() == 0

    injected = apply(json.loads(base64.b64decode(response["patch"])), pod)
    assert variable(injected, "ISTIO_META_CLUSTER_ID") == "east"
    assert variable(injected, "ISTIO_META_NETWORK") == "one"


@pytest.mark.slow
async def test_sigterm_finishes_what_is_under_way(keys: Keys) -> None:
    body = json.dumps(make_review(make_pod())).encode()
    head = (
        "POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    async with running(keys, "--drain", "60s") as (process, port):
        reader, writer = await asyncio.open_connection("localhost", port, ssl=keys.client())
        writer.write(head.encode() + body[:10])
        await writer.drain()
        process.process.send_signal(signal.SIGTERM)
        await process.until("ending drain_seconds=60")

        async with client(port, keys.client()) as server:  # whoever has not heard of it yet
            assert (await server.get("/ready"))[0] == 503
            assert (await server.get("/healthz"))[0] == 200
            assert (await server.review(make_pod()))["allowed"]
        process.process.send_signal(signal.SIGTERM)
        await until_refused(port)
        writer.write(body[10:])
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await writer.wait_closed()

        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b'"allowed": true' in answer
        assert await process.process.wait() == 0


async def test_a_second_signal_skips_the_waiting(keys: Keys) -> None:
    async with running(keys, "--drain", "60s") as (process, _):
        process.process.send_signal(signal.SIGTERM)
        await process.until("ending")
        process.process.send_signal(signal.SIGTERM)

        assert await asyncio.wait_for(process.process.wait(), 5) == 0


async def test_who_gets_no_connection_is_told_why_in_the_log(keys: Keys) -> None:
    async with running(keys) as (process, port):
        reader, writer = await asyncio.open_connection("localhost", port)
        writer.write(b"POST /inject HTTP/1.1\r\nHost: x\r\n\r\n")
        await process.until("refused a handshake reason='http request; expected TLS")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

        old = keys.client()
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises(OSError):  # noqa: PT011 - whichever of them
            await asyncio.open_connection("localhost", port, ssl=old)
        await process.until("refused a handshake reason='unsupported protocol")


@pytest.mark.slow
async def test_a_certificate_is_replaced_while_it_is_served(keys: Keys) -> None:
    async with running(keys) as (process, port), client(port, keys.client()) as server:
        before = await serial(port, keys.client())
        keys.certificate.write_text("nonsense")
        await process.until("kept the old certificate")
        kept = await serial(port, keys.client())

        renewed = keys.renew()
        await process.until("certificate loaded")

        assert kept == before
        assert await serial(port, keys.client()) == renewed
        assert (await server.review(make_pod()))["allowed"]


async def test_half_of_a_new_pair_is_not_taken(keys: Keys, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Keys(tmp_path / "other")
    async with running(keys) as (process, port):
        keys.certificate.write_bytes(other.certificate.read_bytes())
        await process.until("kept the old certificate reason='.*key values mismatch")
        await serial(port, keys.client())

        keys.key.write_bytes(other.key.read_bytes())
        await process.until("certificate loaded")
        await serial(port, other.client())


async def test_a_change_between_reading_and_following_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("read")
    followed = Followed(str(path), "")

    path.write_text("changed")

    async with asyncio.timeout(10):
        async for _ in followed.changes():
            break


@pytest.mark.slow
async def test_a_mounted_certificate_is_replaced_by_a_link(tmp_path: Path) -> None:
    """A secret's volume changes one link: `..data`. cases.md C5."""
    mounts = [tmp_path / "..1", tmp_path / "..2"]
    for mount in mounts:
        mount.mkdir()
    keys, other = Keys(mounts[0]), Keys(mounts[1])
    (tmp_path / "..data").symlink_to(mounts[0])
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    keys.certificate, keys.key = tmp_path / "tls.crt", tmp_path / "tls.key"

    async with running(keys) as (process, port):
        await serial(port, keys.client())
        (tmp_path / "..tmp").symlink_to(mounts[1])
        (tmp_path / "..tmp").replace(tmp_path / "..data")
        await process.until("certificate loaded")

        await serial(port, other.client())
        with pytest.raises(ssl.SSLCertVerificationError):
            await serial(port, keys.client())


@pytest.mark.slow
async def test_configuration_is_replaced_but_not_by_nonsense(keys: Keys, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("global: {network: one}")

    async def network(port: int) -> str | None:
        pod = make_pod()
        async with client(port, keys.client()) as server:
            response = await server.review(pod)
        return variable(apply(json.loads(base64.b64decode(response["patch"])), pod), name)

    name = "ISTIO_META_NETWORK"
    async with running(keys, "--valuesFile", str(values)) as (process, port):
        assert await network(port) == "one"
        values.write_text("global: {network: [}")
        await process.until("kept the old configuration")
        assert await network(port) == "one"

        values.write_text("global: {network: two}")
        await process.until("configuration loaded")

        assert await network(port) == "two"


async def test_a_cluster_that_does_not_answer_is_no_reason_to_wait(keys: Keys) -> None:
    nowhere = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    async with running(keys, **nowhere) as (process, port), client(port, keys.client()) as server:
        assert (await server.get("/ready"))[0] == 200
        assert (await server.review(make_pod()))["allowed"]

    assert any("not followed" in line for line in process.lines)


@pytest.mark.slow
async def test_a_client_that_says_nothing_holds_nothing_up(keys: Keys) -> None:
    async with running(keys) as (process, port):
        silent = [await asyncio.open_connection("localhost", port) for _ in range(20)]
        half, writer = await asyncio.open_connection("localhost", port, ssl=keys.client())
        writer.write(b"POST /inject HTTP/1.1\r\nHost:")

        async with client(port, keys.client()) as server:
            assert (await server.review(make_pod()))["allowed"]
        process.process.send_signal(signal.SIGTERM)

        assert await asyncio.wait_for(process.process.wait(), 10) == 0
        for _, other in (*silent, (half, writer)):
            other.close()
        await until(lambda: half.at_eof() or half.exception())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--tlsCertFile", "/nowhere"), "--tlsCertFile and --tlsKeyFile name"),
        (("--port", "70000"), "--port=70000: expected a port in 0..65535"),
        (("--native-sidecars", "x"), "--native-sidecars='x': expected auto, true or false"),
        (("--valuesFile", "/nowhere"), "cannot read /nowhere: no such file or directory"),
        (("extra",), "injector extra: expected flags alone"),
        (("--log_output_level", "x:y"), "--log_output_level"),
        (("--address", "192.0.2.1"), "cannot listen on 192.0.2.1:0: "),
    ],
)
def test_what_cannot_be_served_is_one_line(
    keys: Keys, words: tuple[str, ...], problem: str
) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "agent", "injector", "--port", "0", "--monitoring-port", "0"),
            *("--tlsCertFile", str(keys.certificate), "--tlsKeyFile", str(keys.key), *words),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )

    assert done.returncode == 255
    assert done.stderr.startswith("Error: ")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_key_with_a_password_is_refused_without_asking(keys: Keys) -> None:
    key = serialization.load_pem_private_key(keys.key.read_bytes(), None)
    keys.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )

    found = subprocess.run(
        [
            *(sys.executable, "-m", "agent", "injector", "--port", "0"),
            *("--tlsCertFile", str(keys.certificate), "--tlsKeyFile", str(keys.key)),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )

    assert found.returncode == 255
    assert "expected a key without a password" in found.stderr


def test_help_names_the_flags() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agent", "injector", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "--tlsCertFile" in done.stdout


def test_the_registration_can_be_printed(keys: Keys, tmp_path: Path) -> None:
    root = tmp_path / "root.pem"
    root.write_text(keys.root.pem)

    def printed(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "agent", "injector", "--print-webhook", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    found = yaml.safe_load(printed("hook.mesh", "--caFile", str(root)).stdout)

    bundle = found["webhooks"][0]["clientConfig"]["caBundle"]
    assert base64.b64decode(bundle).decode() == keys.root.pem
    assert found["metadata"]["name"] == "istio-sidecar-injector-mesh"
    assert printed("hook").stderr == (
        "Error: --print-webhook='hook': expected a service as name.namespace\n"
    )
