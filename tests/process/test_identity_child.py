"""The child that makes keys. Source: xds-identity-dns.md section 6.5; performance.md."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from agent.errors import SecretError
from agent.identity.keys import KeySettings, read_words, write_words
from agent.identity.process import spawn
from tests.fakes.limits import descriptors_left

SPIFFE_ID = "spiffe://cluster.local/ns/default/sa/hello"
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


async def test_a_child_that_is_killed_says_nothing_itself() -> None:
    child = spawn(KeySettings(SPIFFE_ID, rsa_bits=4096))
    os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(SecretError, match=r"killed by signal 9; it takes 20 MB, perhaps more"):
        await child.result()


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
    child = spawn(KeySettings(SPIFFE_ID, rsa_bits=4096))

    assert os.getpriority(os.PRIO_PROCESS, child.pid) == os.nice(0) + 5
    child.close()


#: What an agent does: a child is begun first, and told later, if at all.
AGENT = """
import asyncio, os, sys
from agent.identity.process import begin
child = begin(os.environ)
from agent.identity.keys import read_words
from agent.errors import SecretError

async def main():
    try:
        csr = await child.result()
    except SecretError as error:
        print(error)
    else:
        sys.stdout.write(bytes(csr.key).decode() + csr.request)

if child and sys.argv[1:]:
    child.tell(read_words(sys.argv[1:]))
    asyncio.run(main())
elif child:
    child.close()
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("nobody left" if child else "nobody begun")
"""


def agent(wanted: KeySettings | None, **environ: str) -> str:
    """Return what such an agent says."""
    words = write_words(wanted) if wanted else []
    done = subprocess.run(
        [sys.executable, "-c", AGENT, *words],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("environ", "wanted", "size"),
    [
        ({}, KeySettings(SPIFFE_ID), 2048),
        ({"ECC_SIGNATURE_ALGORITHM": "ECDSA"}, ELLIPTIC._replace(pkcs8=True), 256),
        ({"ECC_SIGNATURE_ALGORITHM": "ECDSA", "ECC_CURVE": "P384"}, ELLIPTIC, 256),
        ({}, ELLIPTIC._replace(p384=True), 384),
        ({"ECC_SIGNATURE_ALGORITHM": "ECDSA"}, KeySettings(SPIFFE_ID, rsa_bits=3072), 3072),
    ],
)
def test_a_child_that_was_begun_makes_what_it_is_told(
    environ: dict[str, str], wanted: KeySettings, size: int
) -> None:
    """Whatever the environment had it begin with."""
    said = agent(wanted, **environ)

    key, request, rest = said.partition("-----BEGIN CERTIFICATE REQUEST-----")
    csr = x509.load_pem_x509_csr((request + rest).encode())
    loaded = serialization.load_pem_private_key(key.encode(), None)
    assert isinstance(loaded, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    assert loaded.key_size == size
    assert loaded.public_key() == csr.public_key()
    (extension,) = csr.extensions
    assert isinstance(extension.value, x509.SubjectAlternativeName)
    assert extension.value.get_values_for_type(x509.UniformResourceIdentifier) == [SPIFFE_ID]
    assert key.startswith("-----BEGIN PRIVATE KEY") == wanted.pkcs8
    assert said.endswith("nobody left\n")


def test_a_child_that_was_begun_ends_if_nothing_is_wanted() -> None:
    assert agent(None) == "nobody left\n"


@pytest.mark.parametrize("name", ["FILE_MOUNTED_CERTS", "AGENT_LOCAL_XDS"])
@pytest.mark.parametrize(("value", "what"), [("true", "begun"), ("false", "left"), ("", "left")])
def test_whose_certificates_are_from_elsewhere_begins_no_child(
    name: str, value: str, what: str
) -> None:
    assert agent(None, **{name: value}) == f"nobody {what}\n"


def test_what_a_child_that_was_begun_says_at_last_is_the_reason() -> None:
    said = agent(ELLIPTIC._replace(spiffe_id="spiffe://ä"), ECC_SIGNATURE_ALGORITHM="ECDSA")

    assert said.startswith("cannot make key and CSR: 'spiffe://ä': expected a SPIFFE ID in ASCII\n")


def test_a_child_that_cannot_begin_says_so_when_asked() -> None:
    """The agent itself will end because of this variable; another reason may come some day."""
    said = agent(KeySettings(SPIFFE_ID), WORKLOAD_RSA_KEY_SIZE="1000000")

    assert said.startswith("cannot make key and CSR: no output\n")


def test_without_descriptors_none_is_begun() -> None:
    """Five are taken: two pipes, and what watches the child."""
    code = (
        "import os\n"
        "from agent.identity.process import begin\n"
        "from tests.fakes.limits import descriptors_left\n"
        "for left in range(5):\n"
        "    with descriptors_left(left):\n"
        "        assert begin({}) is None\n"
        "try:\n"
        "    os.waitpid(-1, os.WNOHANG)\n"
        "except ChildProcessError:\n"
        "    print('nobody left', os.dup(0))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "nobody left 3\n"  # nor any descriptor


#: One that lacks the pod's name.
STARTING: Final = """
import os
from agent.identity.process import begin
child = begin({})
from agent.errors import AgentError
from agent.process import started
from agent.proxy_flags import PROXY_FLAGS
from iptables.flags import parse_flags

try:
    with started(parse_flags(PROXY_FLAGS, []), {}, child):
        pass
except AgentError:
    print("failed")
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("nobody left")
"""


def test_a_start_that_fails_leaves_no_child() -> None:
    assert said_by(STARTING) == ["failed", "nobody left"]


def test_a_child_whose_agent_is_killed_ends_by_itself() -> None:
    """It reads that nobody will tell it anything."""
    code = (
        "import os; from agent.identity.process import begin\n"
        "print(begin({}).pid, flush=True); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    with suppress(ProcessLookupError):
        pidfd = os.pidfd_open(int(killed.stdout))
        ended, _, _ = select.select([pidfd], [], [], 30)
        os.close(pidfd)
        assert ended


def test_the_child_does_without_what_it_does_not_need() -> None:
    """Nearly half of its time would be spent on OpenSSH's formats, and what they import."""
    code = (
        "import sys, agent.identity.__main__ as child\n"
        "wanted = child.read_words(['ec', '256', 'pkcs8', 'spiffe://a'])\n"
        "child.write_csr(child.make_key(wanted), wanted)\n"
        "print('inspect' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def said_by(code: str) -> list[str]:
    """Return the lines that a program of these lines prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_who_has_the_key_leaves_no_core_dump_with_it() -> None:
    """But what it executes may, as Envoy does where asked to."""
    # PR_GET_DUMPABLE
    ask = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True)"
    said = said_by(
        "import subprocess, sys\n"
        "from agent.identity.process import keep_to_itself\n"
        f"{ask}\n"
        "keep_to_itself()\n"
        f"{ask}\n"
        f"subprocess.run([sys.executable, '-c', {ask!r}], check=True)\n"
    )

    assert said == ["1", "0", "1"]


def test_nor_does_the_child_that_makes_it() -> None:
    said = said_by(
        "import resource, agent.identity.__main__ as child\n"
        "_, most = resource.getrlimit(resource.RLIMIT_CORE)\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (most, most))\n"
        "child._make_key(child.read_words(['ec', '256', 'pkcs8', 'spiffe://a']))\n"
        "print(resource.getrlimit(resource.RLIMIT_CORE) in ((0, 0), (1, most)))"
    )

    assert said == ["True"]
