"""The table says what the specification's expanded one would say, in whatever order it comes.

Source: xds-identity-dns.md sections 8.4 and 8.5, deviation D-13.
"""

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from agent.dns.names import KUBERNETES, Entry, Names, make_place
from agent.protobuf.wire import WireError
from tests.fakes.dns_table import serialised

LABELS = st.sampled_from(["a", "b", "svc", "ns1", "local", "*", "A"])
NAMES = st.lists(LABELS, min_size=1, max_size=5).map(".".join)
DOMAINS = st.sampled_from(["ns1.svc.local", "svc.local", "ns1.local", "ns1", ""])
SEARCHES = st.sampled_from(["ns1.svc.local", "svc.local", "b", ""])
IPS = st.lists(st.sampled_from(["1.1.1.1", "2.2.2.2", "::1", "no address"]), max_size=3)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Return a Kubernetes host, regular or not, or any other."""
    short, namespace = draw(st.sampled_from(["a", "b", "a.b"])), draw(st.sampled_from(["ns1", "b"]))
    hosts = [NAMES, st.just(f"{short}.{namespace}.svc.local"), NAMES.map(lambda host: host + ".")]
    return Entry(
        draw(st.one_of(*hosts)),
        tuple(draw(IPS)),
        draw(st.sampled_from([KUBERNETES, "External"])),
        short,
        namespace,
        tuple(draw(st.lists(NAMES, max_size=2))),
    )


TABLES = st.lists(entries(), max_size=6)


class Expanded:
    """The table with every name written out."""

    def __init__(self, table: Sequence[Entry], domain: str, search: str) -> None:
        first, _, rest = domain.partition(".")
        self.suffix = rest if first == "ns1" else domain
        self.hosts: dict[str, list[Entry]] = {}
        for entry in table:
            name = entry.host.lower().removesuffix(".")
            reachable = entry.registry != KUBERNETES or not entry.host.endswith(".")
            if set(entry.ips) - {"no address"} and name not in ("", "*") and reachable:
                self.hosts.setdefault(name, []).append(entry)
        self.stored = {name: name for name in self.hosts}
        for name, hosts in self.alternates().items():
            self.stored.setdefault(name, self.choose(name, hosts))
        self.aliases = {
            f"{name}.{search}": name
            for name in self.stored
            if search and not f".{name}".endswith(f".{search}")
        }

    def alternates(self) -> dict[str, dict[str, bool]]:
        """Return the hosts of each alternate name, and whether it is a short name of theirs."""
        found: dict[str, dict[str, bool]] = {}
        for host, services in self.hosts.items():
            for entry in services:
                if entry.registry != KUBERNETES or not self.is_ours(host):
                    continue
                for name in entry.alt_hosts:
                    if name not in ("*", ""):
                        found.setdefault(name.lower(), {}).setdefault(host, False)
                for name in self.short_names(entry):
                    found.setdefault(name, {})[host] = True
        return found

    def is_ours(self, host: str) -> bool:
        return bool(self.suffix) and host.endswith("." + self.suffix)

    def short_names(self, entry: Entry) -> Iterator[str]:
        yield f"{entry.shortname}.{entry.namespace}"
        yield f"{entry.shortname}.{entry.namespace}.{self.suffix.partition('.')[0]}"
        if entry.namespace == "ns1":
            yield entry.shortname

    def choose(self, name: str, hosts: dict[str, bool]) -> str:
        """Return the host that the pod's resolver would try first, else the first by name."""
        for suffix in (f"ns1.{self.suffix}", self.suffix, self.suffix.partition(".")[2]):
            if hosts.get(f"{name}.{suffix}"):
                return f"{name}.{suffix}"
        return min(hosts)

    def find(self, query: str) -> tuple[str, str] | None:
        """Return the stored name and its host."""
        key, rest = query, query
        while True:
            if key in self.stored:
                return key, self.stored[key]
            if key in self.aliases:
                target = self.aliases[key]
                return target, self.stored[target]
            _, _, rest = rest.partition(".")
            if not rest:
                return None
            key = f"*.{rest}"


def filled(table: Sequence[Entry], domain: str, search: str) -> Names:
    names = Names(make_place("ns1", domain), search)
    for entry in table:
        names.add(entry)
    return names


QUESTIONS = st.tuples(TABLES, DOMAINS, SEARCHES, st.lists(NAMES.map(str.lower), max_size=20))


@given(QUESTIONS)
def test_the_table_answers_as_if_every_name_were_written_out(
    question: tuple[list[Entry], str, str, list[str]],
) -> None:
    table, domain, search, queries = question
    names, expanded = filled(table, domain, search), Expanded(table, domain, search)
    suffixes = ("", ".ns1.svc.local", f".{search}")
    known = [name + suffix for name in expanded.stored for suffix in suffixes]

    for query in (*queries, *known):
        match, expected = names.find(query), expanded.find(query)

        assert (match is None) == (expected is None), query
        if match and expected:
            assert match.name == expected[0], query
            assert sorted(match.entries) == sorted(expanded.hosts[expected[1]]), query


@given(QUESTIONS, st.permutations(range(6)))
def test_the_order_of_the_table_does_not_matter(
    question: tuple[list[Entry], str, str, list[str]], order: list[int]
) -> None:
    table, domain, search, queries = question
    other = [table[index] for index in order if index < len(table)]
    names, others = filled(table, domain, search), filled(other, domain, search)

    for query in (*queries, *Expanded(table, domain, search).stored):
        assert names.find(query) == others.find(query)


@given(QUESTIONS)
def test_a_host_is_never_hidden(question: tuple[list[Entry], str, str, list[str]]) -> None:
    table, domain, search, _ = question
    names = filled(table, domain, search)

    for host in Expanded(table, domain, search).hosts:
        match = names.find(host)
        assert match is not None
        assert (match.name, match.kind, match.has_search) == (host, "host", False)


@given(TABLES)
def test_a_table_that_was_serialised_is_the_same(table: list[Entry]) -> None:
    read = filled([], "ns1.svc.local", "")
    for _ in read.load(serialised(table)):
        pass

    assert read.document() == filled(table, "ns1.svc.local", "").document()


@given(st.one_of(st.binary(max_size=60), TABLES.map(serialised)), st.binary(max_size=4), st.data())
def test_bytes_are_a_table_or_refused(table: bytes, more: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(table)))
    names = filled([], "ns1.svc.local", "")

    try:
        for _ in names.load(table[:place] + more + table[place:]):
            pass
    except WireError:
        return

    assert names.find("a") is None or len(names) > 0
