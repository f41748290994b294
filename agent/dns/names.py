"""The name table of the control plane, and which entry a queried name means.

istiod sends hosts. A pod may also ask for short forms of a Kubernetes host, and for any of them
with the first search domain behind it, which is what the application's resolver tries first. Short
forms that follow from the host, and those with a search domain, are never stored: they are taken
apart when asked for, so that 50,000 hosts are 50,000 keys.

Three classes of names: hosts, then alternate names, then names with a search domain. A name of one
class never hides one of a class before it (D-13). Within a class, what is nearest to the pod wins:
its own namespace, then any namespace, as its resolver would try them; then the host that comes
first in the alphabet.

Names here are text, lower case, without the final dot.

Source: xds-identity-dns.md sections 7.1, 8.3 and 8.4, deviation D-13; status-lifecycle.md 3.8.
"""

from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final, Literal, NamedTuple

from agent.protobuf.wire import fields, text

KUBERNETES: Final = "Kubernetes"
WILDCARD: Final = "*."
#: Hosts that no query means.
NAMELESS: Final = ("", "*")
#: Entries read in one step: less than a millisecond.
STEP_ENTRIES: Final = 64

# Numbers of fields.
TABLE, KEY, VALUE = 1, 1, 2
IPS, REGISTRY, SHORTNAME, NAMESPACE, ALT_HOSTS = 1, 2, 3, 4, 5

#: How a name leads to an entry.
Kind = Literal["host", "alternate name"]


class Entry(NamedTuple):
    """One host of the table, as received."""

    host: str
    ips: tuple[str, ...]
    registry: str = ""
    shortname: str = ""
    namespace: str = ""
    alt_hosts: tuple[str, ...] = ()


#: The same without its class.
Row = tuple[str, tuple[str, ...], str, str, str, tuple[str, ...]]


class Place(NamedTuple):
    """Where the pod is, by which short names are understood."""

    namespace: str = ""
    #: What Kubernetes hosts end in behind their namespace, such as 'svc.cluster.local'.
    suffix: str = ""


class Match(NamedTuple):
    """What a queried name means."""

    #: The stored name that was found, perhaps a wildcard.
    name: str
    kind: Kind
    #: The services of this host; nearly always one.
    entries: tuple[Entry, ...]
    #: The queried name is the stored one with the search domain behind it.
    has_search: bool

    def addresses(self, version: Literal[4, 6]) -> list[str]:
        """Return the addresses of a family, without repetition, in the order of the table."""
        found = (ip for entry in self.entries for ip in entry.ips if ip_version(ip) == version)
        return list(dict.fromkeys(found))


def make_place(namespace: str, domain: str) -> Place:
    """Return the place of a pod.

    Args:
        namespace: the pod's.
        domain: of the proxy, such as 'ns1.svc.cluster.local'.
    """
    first, _, rest = domain.partition(".")
    return Place(namespace.lower(), _normal(rest if first == namespace else domain))


def ip_version(text: str) -> Literal[4, 6] | None:
    """Return the version of an address, None where it is none; ::ffff:1.2.3.4 is IPv6."""
    try:
        if ":" not in text:
            IPv4Address(text)
            return 4
        if "%" not in text:  # a zone has no meaning to others
            IPv6Address(text)
            return 6
    except AddressValueError:
        pass
    return None


class Names:
    """A whole table; it is filled once, then only asked."""

    def __init__(self, place: Place, search: str) -> None:
        """Make an empty table.

        Args:
            place: of the pod.
            search: the first search domain of resolv.conf, '' for none.
        """
        self.place = place
        self.search = search
        #: Host -> its services, as bare tuples: the garbage collector forgets those of texts alone,
        #: where it would visit 50,000 entries for 20 ms.
        self._hosts: dict[str, tuple[Row, ...]] = {}
        #: Entries that cannot be asked for: without an address, or unreachable by their name.
        self.silent: list[Entry] = []
        #: Alternate names that do not follow from their host -> host.
        self._further: dict[str, str] = {}
        self._has_wildcards = False
        self._suffixes = _suffixes(place)

    def __len__(self) -> int:
        """Return the number of hosts."""
        return len(self._hosts)

    def load(self, table: bytes) -> Iterator[None]:
        """Read a serialised NameTable, a step at a time.

        Raises:
            WireError: it is no NameTable; the rest of this object is of no use then.
        """
        shared: dict[str, str] = {}
        for count, (number, _, start, end) in enumerate(fields(table)):
            if number == TABLE:
                self.add(read_entry(table[start:end], shared))
            if count % STEP_ENTRIES == 0:
                yield

    def add(self, entry: Entry) -> None:
        """Add one entry; several for one host are one host with all their addresses."""
        name = _normal(entry.host)
        is_kubernetes = entry.registry == KUBERNETES
        unreachable = name in NAMELESS or (is_kubernetes and entry.host.endswith("."))
        if unreachable or not any(map(ip_version, entry.ips)):
            self.silent.append(entry)
            return
        others, row = self._hosts.get(name, ()), entry[:]
        self._hosts[name] = tuple(sorted((*others, row))) if others else (row,)
        self._has_wildcards |= name.startswith(WILDCARD)
        if is_kubernetes and self._is_ours(name):
            self._add_further(name, entry)

    def _is_ours(self, name: str) -> bool:
        """Return whether the host is of the pod's own cluster domain."""
        return bool(self.place.suffix) and name.endswith("." + self.place.suffix)

    def _add_further(self, name: str, entry: Entry) -> None:
        further = _alternate_hosts(entry)
        if not self._is_regular(name, entry):
            further += _short_names(entry, self.place)
        for alternate in further:
            self._has_wildcards |= alternate.startswith(WILDCARD)
            self._further[alternate] = min(name, self._further.get(alternate, name))

    def _is_regular(self, name: str, entry: Entry) -> bool:
        """Return whether the short names follow from the host."""
        return name == f"{entry.shortname}.{entry.namespace}.{self.place.suffix}".lower()

    def find(self, name: str) -> Match | None:
        """Return what a queried name means, or None where that is not for this table to say.

        The name itself comes first, then the most specific wildcard. A name with an escaped
        character is none of ours, and its labels are not what they seem.
        """
        if "\\" in name:
            return None
        key = name
        while True:
            if found := self._find_exactly(key):
                return found
            if not self._has_wildcards:
                return None
            rest = key.removeprefix(WILDCARD).partition(".")[2]
            if not rest:
                return None
            key = WILDCARD + rest

    def _find_exactly(self, key: str) -> Match | None:
        if stored := self._stored(key):
            return Match(key, *stored, has_search=False)
        search = f".{_normal(self.search)}"
        if search == "." or not key.endswith(search):
            return None
        target = key.removesuffix(search)
        if f".{target}".endswith(search):
            return None
        if stored := self._stored(target):
            return Match(target, *stored, has_search=True)
        return None

    def _stored(self, name: str) -> tuple[Kind, tuple[Entry, ...]] | None:
        if entries := self._entries(name):
            return "host", entries
        for suffix in self._suffixes:
            entries = self._entries(name + suffix)
            if entries and name in self._kubernetes_names(entries):
                return "alternate name", entries
        if host := self._further.get(name):
            return "alternate name", self._entries(host)
        return None

    def _entries(self, host: str) -> tuple[Entry, ...]:
        return tuple(map(Entry._make, self._hosts.get(host, ())))

    def _kubernetes_names(self, entries: tuple[Entry, ...]) -> list[str]:
        """Return the short names of those services of a host that are Kubernetes'."""
        found: list[str] = []
        for entry in entries:
            if entry.registry == KUBERNETES:
                found += _short_names(entry, self.place)
        return found

    def alternate_names(self, entry: Entry) -> list[str]:
        """Return the names under which a host is stored besides its own, nearest first."""
        if entry.registry != KUBERNETES or not self._is_ours(_normal(entry.host)):
            return []
        return [*_short_names(entry, self.place), *_alternate_hosts(entry)]

    def document(self) -> dict[str, dict[str, dict[str, object]]]:
        """Return the table and all names that it answers for, as protobuf's JSON has them.

        Source: status-lifecycle.md section 3.8.
        """
        answered = [entry for host in self._hosts for entry in self._entries(host)]
        table = {entry.host: _as_json(entry) for entry in (*self.silent, *answered)}
        for entry in answered:
            for name in (_normal(entry.host), *self.alternate_names(entry)):
                if f"{name}." not in table and (match := self.find(name)):
                    ips = [*match.addresses(4), *match.addresses(6)]
                    table[f"{name}."] = {"ips": ips, "registry": KUBERNETES}
        return {"table": table}


def _normal(name: str) -> str:
    """Return a name as it is stored: the same object where it is so already, 5 MB in all."""
    normal = name.lower().removesuffix(".")
    return name if normal == name else normal


def _suffixes(place: Place) -> tuple[str, ...]:
    """Return what makes a host of a short name, nearest first."""
    if not place.suffix:
        return ()
    own = f".{place.namespace}.{place.suffix}"
    rest = place.suffix.partition(".")[2]
    return (
        *([own] if place.namespace else []),
        f".{place.suffix}",
        *([f".{rest}"] if rest else []),
    )


def _short_names(entry: Entry, place: Place) -> list[str]:
    short, namespace = entry.shortname.lower(), entry.namespace.lower()
    names = [f"{short}.{namespace}", f"{short}.{namespace}.{place.suffix.partition('.')[0]}"]
    return [*names, short] if namespace == place.namespace else names


def _alternate_hosts(entry: Entry) -> list[str]:
    return [name for host in entry.alt_hosts if (name := _normal(host)) not in NAMELESS]


def _as_json(entry: Entry) -> dict[str, object]:
    fields_of = {
        "ips": list(entry.ips),
        "registry": entry.registry,
        "shortname": entry.shortname,
        "namespace": entry.namespace,
        "altHosts": list(entry.alt_hosts),
    }
    return {key: value for key, value in fields_of.items() if value}


def read_entry(pair: bytes, shared: dict[str, str]) -> Entry:
    """Return one entry of the table's map.

    Args:
        pair: key and value, as protobuf has them in a map.
        shared: texts that many entries have in common; gains those of this one.
    """
    host, value = "", b""
    for number, _, start, end in fields(pair):
        if number == KEY:
            host = text(pair, start, end)
        elif number == VALUE:
            value = pair[start:end]
    ips: list[str] = []
    alt_hosts: list[str] = []
    single = {REGISTRY: "", SHORTNAME: "", NAMESPACE: ""}
    for number, _, start, end in fields(value):
        if number == IPS:
            ips.append(text(value, start, end))
        elif number == ALT_HOSTS:
            alt_hosts.append(text(value, start, end))
        elif number in single:
            single[number] = text(value, start, end)
    registry, namespace = single[REGISTRY], single[NAMESPACE]
    return Entry(
        host,
        tuple(ips),
        shared.setdefault(registry, registry),
        single[SHORTNAME],
        shared.setdefault(namespace, namespace),
        tuple(alt_hosts),
    )
