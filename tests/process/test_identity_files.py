"""Secrets in files: what is read, refused and written. Source: sections 5.4 and 5.8."""

import os
import stat
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from agent.credentials.x509 import certificates
from agent.errors import SecretError
from agent.identity.files import read_crl, read_secret, write_output
from agent.identity.names import FileResource
from agent.identity.secret import KeyPair, PrivateKey, Roots
from agent.identity.settings import OutputSettings
from tests.fakes.ca import Root, write_files
from tests.fakes.control_plane import Pair
from tests.fakes.limits import descriptors_left

ROOT: Final = Root()
OTHER: Final = Root("other")
SPIFFE_ID: Final = "spiffe://td/ns/a/sa/b"
PAIR: Final = ROOT.pair(SPIFFE_ID)


def in_files(directory: Path, pair: Pair = PAIR) -> FileResource:
    write_files(directory, pair)
    return FileResource(f"{directory}/cert-chain.pem", f"{directory}/key.pem")


def root_file(directory: Path, content: bytes | str) -> FileResource:
    path = directory / "root.pem"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return FileResource(str(path))


def negative_serial() -> str:
    """Return a certificate whose serial number Go refuses."""
    (der,) = certificates(PAIR.certificate)
    at = der.index(b"\x02\x14", 8) + 2  # an integer of 20 bytes: the serial
    bent = der[:at] + bytes((der[at] | 0x80,)) + der[at + 1 :]
    from agent.credentials.x509 import certificate_pem  # noqa: PLC0415 - beside its use

    return certificate_pem(bent).decode()


def test_a_pair_is_delivered_byte_for_byte(tmp_path: Path) -> None:
    commented = Pair(b"# mine\n" + PAIR.certificate + ROOT.pem.encode(), PAIR.key)

    secret = read_secret(in_files(tmp_path, commented))

    assert secret == KeyPair(commented.certificate, PrivateKey(commented.key))


def test_a_weak_key_is_not_ours_to_refuse(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 1024)  # noqa: S505 - somebody's has
    leaf = ROOT.sign(key.public_key(), [])
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )

    assert read_secret(in_files(tmp_path, Pair(leaf.encode(), pem)))


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        (Pair(PAIR.certificate, OTHER.pair(SPIFFE_ID).key), "the certificate is not for this key"),
        (Pair(b"junk", PAIR.key), "expected a certificate and its key in PEM"),
        (Pair(PAIR.certificate, b"junk"), "expected a certificate and its key in PEM"),
        (Pair(PAIR.certificate, PAIR.key[:100]), "expected a certificate and its key in PEM"),
        (Pair(PAIR.certificate[:-80], PAIR.key), "expected a certificate and its key in PEM"),
        (Pair(b"", PAIR.key), r"cert-chain\.pem: is empty"),
        (Pair(PAIR.certificate, b""), r"key\.pem: is empty"),
    ],
)
def test_half_a_pair_is_none(tmp_path: Path, pair: Pair, problem: str) -> None:
    """R-4; and no message shows the key."""
    with pytest.raises(SecretError, match=problem) as caught:
        read_secret(in_files(tmp_path, pair))

    body = pair.key[60:120].decode()
    frames = [
        frame for frame, _ in traceback.walk_tb(caught.tb) if "agent" in frame.f_globals["__name__"]
    ]
    assert frames
    assert not body or body not in repr([frame.f_locals for frame in frames])


def test_an_rsa_key_does_not_fit_an_elliptic_certificate(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )

    with pytest.raises(SecretError, match="expected a certificate and its key"):
        read_secret(in_files(tmp_path, Pair(PAIR.certificate, key)))


def test_an_encrypted_key_is_said_to_be_one(tmp_path: Path) -> None:
    key = serialization.load_pem_private_key(PAIR.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"x"),
    )

    with pytest.raises(SecretError, match="the key is encrypted"):
        read_secret(in_files(tmp_path, Pair(PAIR.certificate, key)))


def test_only_a_file_of_a_secrets_size_is_read(tmp_path: Path) -> None:
    """A pipe would have everybody wait, a device never end."""
    pipe, large = tmp_path / "pipe", tmp_path / "large"
    os.mkfifo(pipe)
    large.touch()
    os.truncate(large, 1 << 40)

    for path, problem in (
        (pipe, "Not a regular file"),
        (Path("/dev/zero"), "Not a regular file"),
        (tmp_path, "Not a regular file"),
        (large, "Has more than 16777216 bytes"),
    ):
        with pytest.raises(SecretError, match=f"{path}: {problem}"):
            read_secret(FileResource(str(path)))


@pytest.mark.parametrize("left", [0, 1])
def test_without_descriptors_nothing_can_be_read_or_checked(tmp_path: Path, left: int) -> None:
    resource = in_files(tmp_path)

    with descriptors_left(left), pytest.raises(SecretError, match=r"cert-chain\.pem: .*Too many"):
        read_secret(resource)

    assert read_secret(resource)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """T-C7."""
    resource = in_files(tmp_path)
    (tmp_path / "key.pem").unlink()

    with pytest.raises(SecretError, match=r"key\.pem: No such file or directory"):
        read_secret(resource)


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (ROOT.pem, [ROOT]),
        (f"# a comment\n{ROOT.pem}\ntext\n{OTHER.pem}", [ROOT, OTHER]),
        (ROOT.pem + negative_serial() + OTHER.pem, [ROOT, OTHER]),
        (ROOT.pem + "garbage", [ROOT]),
        (ROOT.pem + OTHER.pem + ROOT.pem, [ROOT, OTHER]),
        (ROOT.pem + OTHER.pem[:-60], [ROOT]),
    ],
)
def test_of_a_bundle_the_good_certificates_are_kept(
    tmp_path: Path, content: str, kept: list[Root]
) -> None:
    """T-C8, R-13."""
    secret = read_secret(root_file(tmp_path, content))

    assert secret == Roots("".join(root.pem for root in kept).encode())


@pytest.mark.parametrize("content", ["", "garbage", ROOT.pem[:-60], negative_serial()])
def test_a_bundle_without_a_good_certificate_is_none(tmp_path: Path, content: str) -> None:
    with pytest.raises(SecretError, match=r"root\.pem: (is empty|holds no certificate)"):
        read_secret(root_file(tmp_path, content))


def test_a_crl_may_be_missing_but_not_wrong(tmp_path: Path) -> None:
    crl = ROOT.revoke(5)

    assert read_crl(FileResource(str(tmp_path / "none"))) == b""
    assert read_crl(root_file(tmp_path, b" \n")) == b" \n"
    assert read_crl(root_file(tmp_path, crl)) == crl
    for wrong in (ROOT.pem.encode(), crl[:-30], b"-----BEGIN X509 CRL-----"):
        with pytest.raises(SecretError, match="expected a CRL in PEM"):
            read_crl(root_file(tmp_path, wrong))
    with pytest.raises(SecretError, match="Not a regular file"):
        read_crl(FileResource(str(tmp_path)))


@pytest.mark.parametrize("mode", [0o600, 0o644])
@pytest.mark.parametrize("key_mode", [0o600, 0o640, 0o644])
def test_files_for_others_have_their_mode(tmp_path: Path, mode: int, key_mode: int) -> None:
    """C16; section 5.8, and the key is nobody else's unless it is said to be."""
    pair = KeyPair(PAIR.certificate, PrivateKey(PAIR.key))

    written = write_output(OutputSettings(str(tmp_path), mode, key_mode), pair, ROOT.pem.encode())

    assert written == ["key.pem", "cert-chain.pem", "root-cert.pem"]
    files = {path.name: path for path in tmp_path.iterdir()}
    assert {name: stat.S_IMODE(path.stat().st_mode) for name, path in files.items()} == {
        "key.pem": key_mode,
        "cert-chain.pem": mode,
        "root-cert.pem": mode,
    }
    assert files["key.pem"].read_bytes() == PAIR.key
    assert files["cert-chain.pem"].read_bytes() == PAIR.certificate
    assert files["root-cert.pem"].read_text() == ROOT.pem


def test_a_mode_that_somebody_has_widened_is_corrected(tmp_path: Path) -> None:
    settings = OutputSettings(str(tmp_path))
    pair = KeyPair(PAIR.certificate, PrivateKey(PAIR.key))
    write_output(settings, pair, b"root")
    (tmp_path / "key.pem").chmod(0o644)

    assert write_output(settings, pair, b"root") == ["key.pem"]
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600


def test_what_has_not_changed_is_not_written(tmp_path: Path) -> None:
    """R-28."""
    settings = OutputSettings(str(tmp_path))
    pair = KeyPair(PAIR.certificate, PrivateKey(PAIR.key))
    write_output(settings, pair, ROOT.pem.encode())
    before = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}

    written = write_output(settings, pair, OTHER.pem.encode())

    after = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    assert written == ["root-cert.pem"]
    assert {name for name, inode in after.items() if before[name] != inode} == {"root-cert.pem"}


def test_what_cannot_be_written_leaves_what_is_there(tmp_path: Path) -> None:
    settings = OutputSettings(str(tmp_path / "out"))
    pair = KeyPair(PAIR.certificate, PrivateKey(PAIR.key))
    with pytest.raises(FileNotFoundError) as caught:
        write_output(settings, pair, b"root")
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(caught.tb)]
    assert PAIR.key[60:120].decode() not in repr(frames)
    (tmp_path / "out" / ".root-cert.pem.new").mkdir(parents=True)

    with pytest.raises(OSError, match="Is a directory"):
        write_output(settings, pair, b"root")

    assert [path.name for path in (tmp_path / "out").iterdir()] == [".root-cert.pem.new"]


#: Write for others to the directory that is the first word; say what is there then.
WRITE = """
import os, sys
from agent.identity.files import write_output
from agent.identity.secret import KeyPair, PrivateKey
from agent.identity.settings import OutputSettings
directory, content = sys.argv[1], sys.argv[2].encode() * int(sys.argv[3])
try:
    write_output(OutputSettings(directory), KeyPair(content, PrivateKey(content)), content)
except OSError as error:
    print(error.strerror)
for name in sorted(os.listdir(directory)):
    print(name, open(f"{directory}/{name}").read(1))
"""


@pytest.mark.root
@pytest.mark.parametrize(
    ("trouble", "content", "problem"),
    [
        ("true", ("b", "8000"), "No space left on device"),
        ("mount -o remount,ro,size=32k out {}", ("b", "1"), "Read-only file system"),
    ],
)
def test_a_disk_that_takes_no_more_keeps_what_it_has(
    tmp_path: Path, trouble: str, content: tuple[str, str], problem: str
) -> None:
    """On a file system of its own, which has room for 32 kB."""
    write = f'{sys.executable} -c "$0" {tmp_path}'
    done = _in_own_mounts(
        f"mount -t tmpfs -o size=32k out {tmp_path}",
        f"{write} a 1",
        trouble.format(tmp_path),
        f"{write} {' '.join(content)}",
    )

    kept = ["cert-chain.pem a", "key.pem a", "root-cert.pem a"]
    assert done == [*kept, problem, *kept]


@pytest.mark.root
def test_a_user_who_may_not_write_any_more_keeps_what_is_there() -> None:
    """And writes again when allowed to; /mnt is a place that every user gets to."""
    write = f'setpriv --reuid 1337 --clear-groups {sys.executable} -c "$0" /mnt'
    done = _in_own_mounts(
        "mount -t tmpfs -o uid=1337,mode=755 out /mnt",
        f"{write} a 1",
        "chown 0 /mnt",
        f"{write} b 1",
        "chown 1337 /mnt",
        f"{write} b 1",
    )

    before, after = (
        [f"{name} {content}" for name in ("cert-chain.pem", "key.pem", "root-cert.pem")]
        for content in "ab"
    )
    assert done == [*before, "Permission denied", *before, *after]


def _in_own_mounts(*steps: str) -> list[str]:
    """Return the lines that commands print, $0 being the program above."""
    done = subprocess.run(
        ["unshare", "-m", "sh", "-ec", "\n".join(steps), WRITE],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()
