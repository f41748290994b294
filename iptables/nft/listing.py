"""What `nft -s -n list ruleset` tells about us: tables of ours, and traces of other backends.

The text is read and not the JSON, which not every build of nft has. With -n names and symbols are
numbers, so that neither the host's databases nor nft's release decide what a rule looks like.

Source: traffic-capture.md sections 11, 15 and 17.11.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from iptables.nft.text import CHAINS, table_name

#: A table of the plan, and a chain as nftables calls it.
Place = tuple[str, str]

AMBIENT: Final = "istio-ambient-"
IPTABLES_CHAIN: Final = "\tchain ISTIO_"


class Listing(NamedTuple):
    """What is installed."""

    tables: tuple[str, ...]  #: those of ours that are there, as the plan names them
    #: Lines of each chain: its hook if it has one, then rules. What else is in a table of ours,
    #: where it has no business, is taken for a chain.
    chains: Mapping[Place, Sequence[str]]
    text: str  #: our tables, as nft reads them
    has_iptables: bool  #: the nft variant of the iptables tools has chains of ours
    is_ambient: bool  #: the node agent captures this namespace


def parse_listing(text: str) -> Listing:
    """Return what the output of `nft -s -n list ruleset` tells about us."""
    ours = {f"table inet {table_name(table)} {{": table for table in CHAINS}
    tables: list[str] = []
    chains: dict[Place, list[str]] = {}
    kept: list[str] = []
    table = block = ""
    for line in text.splitlines():
        if line.startswith("table "):
            table = ours.get(line, "")
            tables += [table] if table else []
        if not table:
            continue
        kept.append(f"{line}\n")
        if line.startswith("\t\t"):
            chains[table, block].append(line.strip())
        elif line.startswith("\t") and line.endswith("{"):
            block = line.strip(" \t{").removeprefix("chain ")
            chains[table, block] = []
    return Listing(
        tuple(tables),
        chains,
        "".join(kept),
        has_iptables=IPTABLES_CHAIN in text,
        is_ambient=f"table inet {AMBIENT}" in text,
    )


def hook_and_rules(lines: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return a chain's hook, '' where it has none, and its rules."""
    if lines and lines[0].startswith("type "):
        return lines[0], lines[1:]
    return "", lines
