"""Tables in memory that take iptables-restore's input, one table at a time and whole or not."""

from collections.abc import Callable, Mapping, Sequence

from iptables.installed import Place
from iptables.normal import normal_form

Tables = dict[Place, list[str]]
BUILT_IN = {
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "raw": ("PREROUTING", "OUTPUT"),
}


class RefusedInputError(Exception):
    """The tools would end with a status other than zero."""


def empty() -> Tables:
    """Return the tables of a new namespace."""
    return {(table, chain): [] for table, chains in BUILT_IN.items() for chain in chains}


def restore(before: Mapping[Place, Sequence[str]], text: str, *, tables: int = 3) -> Tables:
    """Return the tables after `iptables-restore --noflush`; only the first ones are committed."""
    chains = {place: list(specs) for place, specs in before.items()}
    for part in text.split("COMMIT\n")[:tables]:
        table, lines = "", [line for line in part.splitlines() if not line.startswith("#")]
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "*":
                table = rest
                continue
            chain, _, spec = rest.partition(" ")
            COMMANDS[word](chains, (table, chain), spec)
    return chains


def _need(condition: object, place: Place, spec: str = "") -> None:
    if not condition:
        raise RefusedInputError(f"{place} {spec}")


def _new(chains: Tables, place: Place, _: str) -> None:
    _need(place not in chains, place)
    chains[place] = []


def _append(chains: Tables, place: Place, spec: str) -> None:
    _need(place in chains, place, spec)
    chains[place].append(spec)


def _insert(chains: Tables, place: Place, text: str) -> None:
    position, _, spec = text.partition(" ")
    _need(0 < int(position) <= len(chains[place]) + 1, place, text)
    chains[place].insert(int(position) - 1, spec)


def _delete(chains: Tables, place: Place, spec: str) -> None:
    if spec.isdigit():
        _need(0 < int(spec) <= len(chains[place]), place, spec)
        del chains[place][int(spec) - 1]
        return
    forms = [normal_form(each) for each in chains[place]]
    _need(normal_form(spec) in forms, place, spec)
    del chains[place][forms.index(normal_form(spec))]


def _flush(chains: Tables, place: Place, _: str) -> None:
    _need(place in chains, place)
    chains[place].clear()


def _drop(chains: Tables, place: Place, _: str) -> None:
    table, chain = place
    used = any(
        f" -j {chain}" in f" {spec}"
        for (other, _), specs in chains.items()
        if other == table
        for spec in specs
    )
    _need(not chains[place] and not used, place)
    del chains[place]


COMMANDS: Mapping[str, Callable[[Tables, Place, str], None]] = {
    "-N": _new,
    "-A": _append,
    "-I": _insert,
    "-D": _delete,
    "-F": _flush,
    "-X": _drop,
}
