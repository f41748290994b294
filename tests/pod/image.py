"""The images that pods run: the agent's, and one that stands in for every application.

The agent's is a directory with the file system of the image, if POD_IMAGE_ROOT names one. Without,
it is a tree that looks like it, from what this machine has: its /usr, the packages of this Python's
environment, and our own packages, copied and compiled as the image's.
"""

import compileall
import os
import py_compile
import shutil
import ssl
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from agent.demo.files import find_envoy
from tests.fakes.control_plane import Authority

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("agent", "bootstrap", "iptables")
PREFIX: Final = "/opt/mesh-agent"
SITE: Final = f"{PREFIX}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
APPLICATION: Final = "/opt/application"
SEARCH_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Of the Dockerfile.
ENTRYPOINT: Final = ("/usr/bin/env", "--block-signal=TERM,INT", "/usr/local/bin/pilot-agent")
USER: Final = 1337
#: Of the machine's /etc: name look-up, the dynamic linker, which iptables is meant.
COPIED: Final = ("alternatives", "ld.so.cache", "ld.so.conf", "nsswitch.conf", "protocols")
ACCOUNTS: Final = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\nistio-proxy:x:1337:1337::/:/usr/sbin/nologin\n",
    "group": "root:x:0:\nistio-proxy:x:1337:\n",
}


class Image(NamedTuple):
    """What a container starts from."""

    #: Where a file system begins, and its layers, the uppermost first; "/" comes first.
    layers: tuple[tuple[str, tuple[str, ...]], ...]
    entrypoint: tuple[str, ...]
    environ: Mapping[str, str]
    uid: int = 0
    binds: tuple[tuple[str, str], ...] = ()  #: (source, target), read-only
    #: A file by which the program says that it has begun. Real applications are quicker than
    #: Python: a hook after their start finds them listening.
    announcement: str = ""


def agent_image(directory: Path) -> Image:
    """Return the agent's image; what it needs is made in a directory."""
    environ = {"PATH": SEARCH_PATH}
    built = os.environ.get("POD_IMAGE_ROOT")
    layers = (("/", (built,)),) if built else prepare_tree(directory)
    return Image(layers, ENTRYPOINT, environ, uid=USER)


def application_image(agent: Image, directory: Path) -> Image:
    """Return the image of the stand-in for applications; see application.py."""
    binaries = directory / "bin"
    binaries.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("application.py"), directory)
    shutil.copy(ROOT / "tests/fakes/load.py", directory)
    shutil.copy(ROOT / "agent/demo/client.py", directory)
    pair = Authority("application").issue("application")
    (directory / "tls.pem").write_bytes(pair.key + pair.certificate)
    perl = binaries / "perl"  # the job's; see application.py
    perl.write_text(f"#!/bin/sh\nexec {PREFIX}/bin/python {APPLICATION}/application.py job\n")
    perl.chmod(0o755)
    return Image(
        agent.layers,
        (f"{PREFIX}/bin/python", f"{APPLICATION}/application.py"),
        {"PATH": f"{APPLICATION}/bin:{SEARCH_PATH}"},
        binds=((str(directory), APPLICATION),),
        announcement="/tmp/begun",  # noqa: S108 - in a container
    )


def tls_context(directory: Path) -> ssl.SSLContext:
    """Return what a client of the stand-in needs: it trusts nobody in particular."""
    context = ssl.create_default_context(cafile=str(directory / "tls.pem"))
    context.check_hostname = False
    return context


def prepare_tree(directory: Path) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Make a tree that looks like the image's; return it as an image's layers."""
    root, usr, site = directory / "root", directory / "usr", directory / "site-packages"
    own = (root / PREFIX[1:] / "bin", usr / "local/bin", site)
    for path in (*own, *(root / name for name in ("tmp", "usr", "run", "var"))):
        path.mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "var/run").symlink_to("/run")
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        if Path("/", name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    _make_etc(root / "etc")
    _install(root / PREFIX[1:], usr / "local/bin", site)
    (root / SITE[1:]).mkdir(parents=True)
    installed = sysconfig.get_path("purelib")
    layers = [("/", (str(root),)), ("/usr", (str(usr), "/usr")), (SITE, (str(site), installed))]
    base = Path(sys.base_prefix)
    if not base.is_relative_to("/usr"):
        (root / base.relative_to("/")).mkdir(parents=True)
        layers.append((str(base), (str(base),)))
    return tuple(layers)


def _make_etc(directory: Path) -> None:
    directory.mkdir()
    for name in COPIED:
        source = Path("/etc", name)
        if source.is_dir():
            shutil.copytree(source, directory / name, symlinks=True)
        elif source.exists():
            shutil.copy(source, directory)
    for name, text in ACCOUNTS.items():
        (directory / name).write_text(text)


def _install(prefix: Path, binaries: Path, site: Path) -> None:
    """Install Python, our packages and Envoy, as the Dockerfile does."""
    python = Path(sys.executable).resolve()
    (prefix / "bin/python").symlink_to(python)
    (prefix / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    for name in ("agent", "pilot-agent"):
        script = prefix / "bin" / name
        text = (ROOT / "agent/bin" / name).read_text()
        script.write_text(text.replace("#!python", f"#!{PREFIX}/bin/python", 1))
        script.chmod(0o755)
        (binaries / name).symlink_to(f"{PREFIX}/bin/{name}")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, site / name, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(
        site,
        quiet=1,
        workers=0,
        stripdir=str(site),
        prependdir=SITE,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    envoy = Path(find_envoy("/usr/local/bin/envoy"))
    if not envoy.is_relative_to("/usr"):
        inside = envoy.relative_to(sysconfig.get_path("purelib"))
        (binaries / "envoy").symlink_to(Path(SITE) / inside)
