"""Loads python-iptables, which binds libiptc and libxtables, without letting it run a program.

What must be known of it:

- Its import looks for these libraries by running ldconfig and the compiler, and loads what
  distutils needs. Both are kept from it, so that it takes 30 ms and not 180.
- libxtables takes an extension from its file for one family only, the first. See `_register`.
"""

# ruff: noqa: PLC0415 - see above
# ruff: noqa: ANN401 - python-iptables has no types

import ctypes
import ctypes.util
import errno
import os
import socket
import struct
import subprocess
import sys
from glob import glob
from typing import Any, Final, NamedTuple

from iptables.netlink import Family

IPV4: Final = 4
#: The extensions that rules of ours use. Source: traffic-capture.md section 6.6.
MATCHES: Final = ("tcp", "udp", "multiport", "owner", "conntrack", "mark", "connmark")
TARGETS: Final = ("REDIRECT", "TPROXY", "MARK", "CONNMARK", "CT")
#: Of them, those that differ between the families.
OF_A_FAMILY: Final = ("libxt_REDIRECT.so", "libxt_TPROXY.so")
#: Files to load by the names that python-iptables asks for. Those of the tools 1.8.
LIBRARIES: Final = {
    "c": "libc.so.6",
    "xtables": "libxtables.so.12",
    "ip4tc": "libip4tc.so.2",
    "ip6tc": "libip6tc.so.2",
}
#: Where distributions keep libxtables' extensions.
EXTENSIONS: Final = ("/usr/lib/*/xtables", "/usr/lib64/xtables", "/usr/lib/xtables", "/lib/xtables")


class RefusedError(Exception):
    """A library, a lock or the kernel refuses; with the exit status that the tools have then."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(text)
        self.status = status


class Library(NamedTuple):
    """What python-iptables has for one family."""

    table: Any
    rule: Any
    match: Any
    target: Any
    extensions: Any
    availability: dict[str, bool]
    errors: tuple[type[Exception], ...]


#: By family: its number, and which matches the kernel has: IP(6)T_SO_GET_REVISION_MATCH.
REVISION: Final = {
    4: (socket.AF_INET, socket.IPPROTO_IP, 66),
    6: (socket.AF_INET6, socket.IPPROTO_IPV6, 68),
}
#: What is registered, by family: libxtables keeps it for the life of the process.
REGISTERED: Final[dict[Family, Any]] = {}


def library(family: Family) -> Library:
    """Return python-iptables for a family.

    Raises:
        RefusedError: it cannot be used.
    """
    try:
        iptc = _load()
        from iptc.xtables import NFPROTO_IPV4, NFPROTO_IPV6, XTablesError, xtables
    except (ImportError, OSError, AttributeError) as error:
        raise RefusedError(
            f"python-iptables (mesh-agent[libiptc]) cannot be used: {error}"
        ) from error
    proto, suffix = (NFPROTO_IPV4, "") if family == IPV4 else (NFPROTO_IPV6, "6")
    extensions = REGISTERED.get(family)
    if not extensions:
        _check_rights(family)
        extensions = REGISTERED[family] = xtables(proto)
        _register(extensions)
    table = getattr(iptc, f"Table{suffix}")
    return Library(
        table=table,
        rule=getattr(iptc, f"Rule{suffix}"),
        match=iptc.Match,
        target=iptc.Target,
        extensions=extensions,
        availability=table.existing_table_names,
        errors=(iptc.IPTCError, XTablesError, ValueError, AttributeError),
    )


def _check_rights(family: Family) -> None:
    """Ask the kernel what libxtables asks it first: where that may not, it ends the process.

    Raises:
        RefusedError: this process may not.
    """
    number, protocol, question = REVISION[family]
    answer = ctypes.create_string_buffer(struct.pack("=29sB", b"tcp", 0))
    size = ctypes.c_uint32(30)
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        with socket.socket(number, socket.SOCK_RAW, socket.IPPROTO_RAW) as sock:
            arguments = (sock.fileno(), protocol, question, answer, ctypes.byref(size))
            if libc.getsockopt(*arguments) and ctypes.get_errno() == errno.EPERM:
                raise RefusedError(f"asking the kernel for its matches: {os.strerror(errno.EPERM)}")
    except OSError:  # libxtables cannot ask then, and goes on
        return


def _register(extensions: Any) -> None:
    """Make the extensions known that differ between the families.

    A library tells libxtables of its extensions when it is loaded, which keeps those of the
    current family; loading it again does nothing. A copy in memory is another library, as long as
    its name is: so the copies stay open. Of matches that it has for one family already, libxtables
    says on stderr that the kernel lacks them: they are looked up here, with stderr closed.
    """
    extensions._xtables_set_nfproto(extensions.proto)  # noqa: SLF001 - of the instance's class
    for name in OF_A_FAMILY:
        copy = os.memfd_create(name)
        path = f"{os.environ['XTABLES_LIBDIR']}/{name}"
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow
            os.write(copy, file.read())
        ctypes.CDLL(f"/proc/self/fd/{copy}")
    stderr = os.dup(2)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    try:
        for name in MATCHES:
            extensions.find_match(name)
    finally:
        os.dup2(stderr, 2)
        os.close(silence)
        os.close(stderr)


def _load() -> Any:
    """Import python-iptables without letting it run a program."""
    if "iptc" not in sys.modules:
        places = (path for pattern in EXTENSIONS for path in sorted(glob(pattern)))  # noqa: PTH207 - as above
        found = next(places, None)
        if found:
            os.environ.setdefault("XTABLES_LIBDIR", found)
        before = ctypes.util.find_library, subprocess.Popen
        ctypes.util.find_library = LIBRARIES.get  # type: ignore[assignment]  # for now
        subprocess.Popen = _refuse  # type: ignore[assignment,misc]  # for now
        sys.modules["distutils"] = None  # type: ignore[assignment]  # is missing, for now
        try:
            import iptc
        finally:
            ctypes.util.find_library, subprocess.Popen = before  # type: ignore[misc]  # as they were
            del sys.modules["distutils"]
    import iptc

    return iptc


def _refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, "no program is run")
