"""The child that makes keys. Source: xds-identity-dns.md section 6.5; performance.md."""

import asyncio
import os
import subprocess
import sys
import traceback

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from agent.errors import SecretError
from agent.identity.keys import KeySettings, read_words, write_words
from agent.identity.process import read_output, spawn, spawn_early
from agent.identity.secret import PrivateKey
from tests.fakes.limits import descriptors_left

SPIFFE_ID = "spiffe://cluster.local/ns/default/sa/hello"
BENT = b"-----BEGIN CERTIFICATE REQUEST-----\nMAA=\n-----END CERTIFICATE REQUEST-----\n"
ELLIPTIC = KeySettings(SPIFFE_ID, elliptic=True)


def is_gone(pid: int) -> bool:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True
    return False


@pytest.mark.parametrize("settings", [KeySettings(SPIFFE_ID), ELLIPTIC._replace(pkcs8=True)])
async def test_key_and_request_come_through_the_pipe(settings: KeySettings) -> None:
    child = spawn(settings)
    csr = await child.result()

    request = x509.load_pem_x509_csr(csr.request.encode())
    key = serialization.load_pem_private_key(bytes(csr.key), None)
    assert request.public_key() == key.public_key()
    assert csr.public_key == key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert is_gone(child.pid)


async def test_what_a_child_says_at_last_is_the_reason() -> None:
    child = spawn(ELLIPTIC._replace(spiffe_id="spiffe://ä"))

    with pytest.raises(
        SecretError, match=r"^cannot make key and CSR: .*expected a SPIFFE ID in ASCII"
    ) as caught:
        await child.result()

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("left", [0, 1, 2])
def test_without_descriptors_there_is_no_child(left: int) -> None:
    """With two it can be started, but not watched."""
    with (
        descriptors_left(left),
        pytest.raises(SecretError, match=r"cannot start .*: Too many open files"),
    ):
        spawn(ELLIPTIC)

    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


async def test_a_child_that_nobody_needs_is_ended() -> None:
    child = spawn(KeySettings(SPIFFE_ID, rsa_bits=4096))
    child.close()
    child.close()

    assert is_gone(child.pid)


async def test_who_stops_waiting_ends_the_child() -> None:
    child = spawn(KeySettings(SPIFFE_ID, rsa_bits=4096))
    waiting = asyncio.create_task(child.result())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait((waiting,))

    assert is_gone(child.pid)


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
        read_output(PrivateKey(output))

    frames = [frame.f_locals for frame, _ in traceback.walk_tb(caught.tb)]
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(frames[1:])  # the first is this one


@pytest.mark.parametrize(
    "settings",
    [
        KeySettings(SPIFFE_ID),
        KeySettings(SPIFFE_ID, rsa_bits=4096, pkcs8=True),
        ELLIPTIC,
        ELLIPTIC._replace(p384=True, pkcs8=True),
    ],
)
def test_the_words_say_what_to_make(settings: KeySettings) -> None:
    assert read_words(write_words(settings)) == settings


def test_the_agent_itself_never_loads_the_library() -> None:
    code = (
        "import sys, agent.identity.run, agent.identity.cli, agent.identity.watch.files\n"
        "print([name for name in sys.modules if name.startswith('cryptography')])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


async def test_a_child_leaves_what_is_urgent_its_time() -> None:
    child = spawn_early(ELLIPTIC)

    assert child
    assert os.getpriority(os.PRIO_PROCESS, child.pid) == os.nice(0) + 5
    assert (await child.result()).request


def test_where_there_can_be_no_child_nobody_waits_for_one() -> None:
    with descriptors_left(0):
        assert spawn_early(ELLIPTIC) is None
