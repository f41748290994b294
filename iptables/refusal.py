"""What to tell the user when a tool refuses its input.

Source: traffic-capture.md sections 6.6 and 8.3.
"""

import re
from collections.abc import Sequence
from typing import Final

#: Kernel modules by the words of a rule that need them.
MODULES: Final = {
    "-m owner": "xt_owner",
    "-m multiport": "xt_multiport",
    "-m conntrack": "xt_conntrack",
    "-m mark": "xt_mark",
    "-m connmark": "xt_connmark",
    "-j REDIRECT": "xt_REDIRECT",
    "-j TPROXY": "xt_TPROXY",
    "-j MARK": "xt_mark",
    "-j CONNMARK": "xt_connmark",
    "-j CT": "xt_CT",
}
NEEDS_RIGHTS: Final = (
    "packet filter rules cannot be read or changed: the process needs CAP_NET_ADMIN"
)
#: How the tools and the kernel say that they may not.
DENIED: Final = ("Operation not permitted", "Permission denied")
#: How the tools name a match or target that the kernel does not know.
EXTENSION: Final = r"[Ee]xtension (\w+) revision \d+ not supported"
NOISE: Final = ("Try `", "Error occurred at line")
#: Before the text itself: the tool's name and version, 'line 3 failed', 'line 42:'.
PREFIX: Final = r"^(ip6?tables[\w-]*( v\S+ \(\w+\))?: *)*(line \d+( failed)?(: *|$))?"


def refusal(tool: str, status: int, stderr: str, text: str, table_module: str) -> str:
    """Return one line: the tool, the line it refused, its reason, and the modules it needs.

    Args:
        tool: the program's name.
        status: its exit status, negative if a signal ended it.
        stderr: what it said.
        text: what it was given.
        table_module: module of a table with '{}' for its name, such as 'iptable_{}'.
    """
    lines = text.splitlines()
    at = re.search(r"line:? (\d+)", stderr)
    number = int(at[1]) if at and int(at[1]) <= len(lines) else 0
    where = f" line {number}, '{lines[number - 1]}'" if number else " its input"
    reason = f": {said}" if (said := summary(stderr)) else ""
    line = f"{tool} refused{where}: exit status {status}{reason}"
    if reason and not number:
        return line  # not a matter of a rule: permission, the lock
    tables, modules = _needs(lines, number, table_module)
    modules += [f"xt_{name}" for name in re.findall(EXTENSION, stderr)]
    which = ", ".join(dict.fromkeys(modules))
    unsaid = "" if reason else "; no reason is given: a seccomp profile may deny it"
    return f"{line} (table {', '.join(tables)} needs the kernel modules {which}{unsaid})"


def cause(said: str, *, has_net_admin: bool) -> str:
    """Return what was said when something failed, or why it did, if that is known better.

    Args:
        said: one line.
        has_net_admin: whether the process may change packet filter rules, by its capabilities.
    """
    if not has_net_admin:
        return NEEDS_RIGHTS
    if "CAP_NET_ADMIN" not in said and any(words in said for words in DENIED):
        return (
            f"{said}: the process has CAP_NET_ADMIN, so a seccomp profile or a security module "
            "must allow it"
        )
    return said


def summary(stderr: str) -> str:
    """Return what a tool said as one line, without its name and its advice to read its help."""
    lines = [line for line in stderr.splitlines() if not line.startswith(NOISE)]
    said = [re.sub(PREFIX, "", line).strip() for line in lines]
    return "; ".join(filter(None, said))


def _needs(lines: Sequence[str], number: int, table_module: str) -> tuple[list[str], list[str]]:
    """Return table and modules of a line; COMMIT stands for its table, 0 for everything."""
    if number:
        start = max((at for at in range(number) if lines[at].startswith("*")), default=0)
        whole = lines[start:number]
        lines = whole if whole[-1] == "COMMIT" else [whole[0], whole[-1]]
    tables = [line.removeprefix("*").strip() for line in lines if line.startswith("*")]
    needed = [module for words, module in MODULES.items() if any(words in line for line in lines)]
    return list(dict.fromkeys(tables)), [*map(table_module.format, tables), *needed]
