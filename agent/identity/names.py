"""Resource names of SDS: what Envoy may ask for.

A name that is none of these is refused: the reference answers it with the workload's key (D-4).

Source: xds-identity-dns.md section 5.1.
"""

from typing import Final, NamedTuple

WORKLOAD: Final = "default"
WORKLOAD_ROOT: Final = "ROOTCA"
PAIR_PREFIX: Final = "file-cert:"
ROOT_PREFIX: Final = "file-root:"
SYSTEM_ROOT: Final = "file-root:system"
SEPARATOR: Final = "~"
EXPECTED: Final = (
    f"expected {WORKLOAD}, {WORKLOAD_ROOT}, {PAIR_PREFIX}<chain>{SEPARATOR}<key> "
    f"or {ROOT_PREFIX}<file>"
)


class FileResource(NamedTuple):
    """Files behind a resource: a chain and its key or, without a key, root certificates."""

    certificate: str
    key: str = ""


def file_resource(name: str) -> FileResource:
    """Return the files that a name stands for.

    Raises:
        ValueError: it is no name of files; says what would be.
    """
    if "\0" in name:
        raise ValueError(f"unknown resource name {name!r}: a path has no NUL")
    if name.startswith(PAIR_PREFIX):
        parts = name.removeprefix(PAIR_PREFIX).split(SEPARATOR)
        if len(parts) == len(("chain", "key")) and all(parts):
            return FileResource(*parts)
    elif name.startswith(ROOT_PREFIX):
        path = name.removeprefix(ROOT_PREFIX)
        if path and SEPARATOR not in path:
            return FileResource(path)
    raise ValueError(f"unknown resource name {name!r}: {EXPECTED}")
