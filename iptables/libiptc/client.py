"""Does what iptables-save and iptables-restore do for the legacy tables, without a child process.

Three habits of python-iptables are worked around. It opens every table to find out whether a target
is a chain, which would make these tables. It misreads extensions of another revision than its own,
or ends the process over one that it cannot load: so only those that our rules use are read, and
other rules show their target alone. And of IPv6 interfaces it has the kernel compare the lowest bit
of each letter: see `_compare_whole_names`.
"""

# ruff: noqa: PLC0415 - python-iptables is loaded where it is used
# ruff: noqa: ANN401 - python-iptables has no types

import ctypes
import errno
import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from iptables.installed import TABLES
from iptables.libiptc import files
from iptables.libiptc.files import MATCHES, TARGETS, Library, RefusedError
from iptables.libiptc.parts import ATTRIBUTES, Operation, parse_input, parse_spec, render_spec
from iptables.lock.client import XTABLES_LOCK
from iptables.netlink import Family
from iptables.normal import normal_form
from iptables.process import Result

#: Tables that this namespace has, by family: reading another one would make it.
NAMES: Final = {4: "/proc/net/ip_tables_names", 6: "/proc/net/ip6_tables_names"}
BUSY: Final = 4  # the tools' exit status for it
LOCK_SECONDS: Final = 30.0
LOCK_PAUSE_SECONDS: Final = 0.02


def save(family: Family) -> Result:
    """Return what iptables-save would print of the tables that we use."""
    try:
        library = files.library(family)
        with open(NAMES[family], encoding="ascii") as file:  # noqa: PTH123 - pathlib is slow
            names = set(file.read().split())
        lines: list[str] = []
        for name in sorted(names.intersection(TABLES)):
            with _translated(library), _opened(library, name) as table:
                lines += _saved(library, table, name)
    except (RefusedError, OSError) as error:
        return Result(1, "", str(error))
    return Result(0, "".join(f"{line}\n" for line in lines), "")


def _saved(library: Library, table: Any, name: str) -> list[str]:
    chains = [chain.name for chain in table.chains]
    rules = [
        f"-A {chain} {spec}".rstrip() for chain in chains for spec in _specs(library, table, chain)
    ]
    return [f"*{name}", *(f":{chain} - [0:0]" for chain in chains), *rules, "COMMIT"]


def restore(family: Family, text: str) -> Result:
    """Do what `iptables-restore --noflush` would: each table changes whole or not at all."""
    try:
        library = files.library(family)
        with _locked(), ExitStack() as stack:
            table: Any = None
            for operation in parse_input(text):
                with _translated(library, f"line {operation.line}: "):
                    if operation.command == "*":
                        table = stack.enter_context(_opened(library, operation.chain))
                    elif operation.command == "COMMIT":
                        table.commit()
                        stack.close()
                    else:
                        _operate(library, table, operation)
    except RefusedError as error:
        return Result(error.status, "", str(error))
    return Result(0, "", "")


@contextmanager
def _translated(library: Library, where: str = "") -> Iterator[None]:
    """Give errors of the block the line of the input, as the tools do."""
    errors: tuple[type[Exception], ...] = (*library.errors, RefusedError)
    try:
        yield
    except errors as error:
        said = str(error).replace("b'", "'")
        is_busy = os.strerror(errno.EAGAIN) in said  # the table has changed since it was opened
        raise RefusedError(f"{where}{said}", BUSY if is_busy else 1) from error


@contextmanager
def _opened(library: Library, name: str) -> Iterator[Any]:
    """Open a table as it is now; what is not committed is dropped at the end."""
    library.availability.clear()
    library.availability.update({each: each == name for each in library.table.ALL})
    table = library.table(name, autocommit=False)
    table.refresh()
    try:
        yield table
    finally:
        table.close()


def _operate(library: Library, table: Any, operation: Operation) -> None:
    match operation.command:
        case "-N":
            table.create_chain(operation.chain)
        case "-F":
            table.flush_entries(operation.chain)
        case "-X":
            table.delete_chain(operation.chain)
        case "-D":
            _delete(library, table, operation)
        case "-I":
            entry = _entry(library, operation.spec)
            table.insert_entry(operation.chain, entry, operation.position - 1)
        case _:
            table.append_entry(operation.chain, _entry(library, operation.spec))


def _delete(library: Library, table: Any, operation: Operation) -> None:
    number = operation.position - 1
    if operation.spec:
        forms = [normal_form(spec) for spec in _specs(library, table, operation.chain)]
        wanted = normal_form(operation.spec)
        if wanted not in forms:
            raise RefusedError("there is no such rule")
        number = forms.index(wanted)
    handle = table._handle  # noqa: SLF001 - it deletes by value only, which hits another's twin
    delete = table._iptc.iptc_delete_num_entry  # noqa: SLF001 - as above
    if not delete(operation.chain.encode(), number, handle):
        raise RefusedError(str(table.strerror()))


def _entry(library: Library, spec: str) -> Any:
    """Return a rule as libiptc takes it."""
    parts = parse_spec(spec)
    rule = library.rule()
    for attribute, value in parts.attributes:
        setattr(rule, attribute, value)
    _compare_whole_names(rule.get_ip())
    for name, parameters in parts.matches:
        match = rule.create_match(name)
        for parameter, value in parameters:
            match.set_parameter(parameter, value)
    target = rule.create_target(parts.target.name)
    for parameter, value in parts.target.parameters:
        target.set_parameter(parameter, value)
    rule.final_check()
    return rule.rule


def _compare_whole_names(packet: Any) -> None:
    """Set all bits of the masks of both interfaces, as the tools do.

    With python-iptables' own masks for IPv6, net1 is taken for lo, and no tool finds the rule.
    """
    for mask in ("iniface_mask", "outiface_mask"):
        setattr(packet, mask, b"\xff" * len(getattr(packet, mask)))


def _specs(library: Library, table: Any, chain: str) -> list[str]:
    """Return the rules of a chain as text."""
    found = []
    entry = table.first_rule(chain)
    while entry:
        found.append(_spec(library, table, entry))
        entry = table.next_rule(entry)
    return found


def _spec(library: Library, table: Any, entry: Any) -> str:
    from iptc.xtables import xt_entry_match, xt_entry_target

    rule = library.rule()
    rule.entry = entry
    attributes = [(option, getattr(rule, name)) for option, name in ATTRIBUTES.items()]
    matches = []
    offset, end = ctypes.sizeof(type(entry)), entry.target_offset
    while offset < end:
        raw = xt_entry_match.from_address(ctypes.addressof(entry) + offset)
        name = raw.u.user.name.decode()
        if name in MATCHES and _fits(library.extensions.find_match(name), raw, raw.u.match_size):
            matches.append((name, library.match(rule, match=raw).get_all_parameters()))
        else:
            matches.append((name, {"unreadable": [str(raw.u.user.revision)]}))
        offset += raw.u.match_size
    label = table.get_target(entry).decode()
    raw = xt_entry_target.from_address(ctypes.addressof(entry) + end)
    parameters: Mapping[str, Sequence[str]] = {}
    if label and raw.u.user.name.decode() == label:
        parameters = {"unreadable": [str(raw.u.user.revision)]}
        is_ours = label in TARGETS
        if is_ours and _fits(library.extensions.find_target(label), raw, raw.u.target_size):
            parameters = library.target(rule, target=raw).get_all_parameters()
    return render_spec(attributes, matches, (label, parameters))


def _fits(module: Any, raw: Any, size: int) -> bool:
    """Return whether an extension of a rule is of the revision that the library has."""
    from iptc.xtables import xt_align, xt_entry_match

    if not module or module[0].revision != raw.u.user.revision:
        return False
    return bool(xt_align(module[0].size + ctypes.sizeof(xt_entry_match)) == size)


@contextmanager
def _locked() -> Iterator[None]:
    """Hold the lock that the legacy tools take."""
    path = os.environ.get("XTABLES_LOCKFILE", XTABLES_LOCK)
    try:
        file = os.open(path, os.O_CREAT | os.O_RDONLY, 0o600)
    except OSError as error:
        raise RefusedError(f"can't open lock file {path}: {error.strerror}", BUSY) from error
    deadline = time.monotonic() + LOCK_SECONDS
    try:
        while not _try_lock(file):
            if time.monotonic() > deadline:
                raise RefusedError("another program holds the xtables lock", BUSY)
            time.sleep(LOCK_PAUSE_SECONDS)
        yield
    finally:
        os.close(file)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
