"""What the child does that makes a key and its CSR, for process.py."""

import gc
import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

gc.disable()  # nothing of what is imported is ever garbage: a tenth of the child's time

with suppress(ImportError):
    from cryptography.hazmat.primitives import _serialization

    # The library asks for this package when a key is written. All that is needed of it stands in
    # a module of its own; the rest, OpenSSH's formats, would be a quarter of the child's time.
    sys.modules.setdefault("cryptography.hazmat.primitives.serialization", _serialization)

from agent.identity.csr import Key, make_key, write_csr  # noqa: E402 - after the above
from agent.identity.keys import KeySettings, read_words, write_words  # noqa: E402 - as above

#: The size of a core dump that the kernel does not make even if a program is to take it. core(5)
NO_CORE: Final = 1


def run() -> None:
    """Make what the words on the command line say, and leave."""
    wanted = read_words(sys.argv[1:])
    _write(_make_key(wanted), wanted)
    os._exit(0)  # tearing down takes longer than everything before


def run_ahead(environ: Mapping[str, str], pipe: int) -> None:
    """Make the key that will probably be wanted, and its CSR once it is known what is.

    Args:
        environ: the agent's environment.
        pipe: where the words come from; it ends without any if nothing is wanted.
    """
    from agent.identity.settings import parse_key  # noqa: PLC0415 - the other child is told all
    from agent.reader import Reader  # noqa: PLC0415 - as above

    read = Reader(environ)
    probable = parse_key(read, trust_domain="")
    if read.errors:
        return  # the agent will end because of them
    key = _make_key(probable)
    with open(pipe, encoding="utf-8", errors="surrogateescape") as told:
        words = told.read().split("\0")
    if words == [""]:
        return
    wanted = read_words(words)
    is_right = write_words(wanted)[:2] == write_words(probable)[:2]  # algorithm and size
    _write(key if is_right else make_key(wanted), wanted)


def _make_key(settings: KeySettings) -> Key:
    """Return a key that no core dump of this process will have in it."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (most and NO_CORE, most))
    return make_key(settings)


def _write(key: Key, wanted: KeySettings) -> None:
    """Write key and CSR, or why there is none."""
    try:
        os.write(1, b"".join(write_csr(key, wanted)))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    run()
