"""What is to be captured, from flags, environment and host.

Source: traffic-capture.md sections 2 and 3.
"""

from collections.abc import Mapping
from ipaddress import ip_address, ip_interface
from typing import Final, Literal, NamedTuple

from iptables import host, lists
from iptables.errors import ConfigError
from iptables.flags import Parsed, parse_bool
from iptables.host import Families, HostFacts, Servers
from iptables.lists import MAX_PORT, ListReader, Ranges, Selection
from iptables.netlink import IPV4, IPV6, Family

Mode = Literal["REDIRECT", "TPROXY", "NONE"]
#: Whose tables, and by what: the tools of these kinds, or libiptc without any tool.
Variant = Literal["legacy", "nft", "plain", "libiptc"]
Backend = Literal["", "iptables", "libiptc", "nft"]

MODES: Final[Mapping[str, Mode]] = {
    "": "REDIRECT",  # virtual machines pass no mode
    "REDIRECT": "REDIRECT",
    "TPROXY": "TPROXY",
    "NONE": "NONE",
}
BACKENDS: Final[Mapping[str, Backend]] = {
    "": "",
    "iptables": "iptables",
    "libiptc": "libiptc",
    "nft": "nft",
}
FORCED: Final[Mapping[str, Variant | None]] = {"": None, "legacy": "legacy", "nft": "nft"}
DEFAULT_LOOPBACK: Final = "127.0.0.1/32"
PROXY_ID: Final = "1337"
MAX_GROUPS: Final = 64  # each is a match of one rule
LARGEST_MARK: Final = 2**32 - 1
#: Tables that are not ours whatever a rule says: default, main, local.
WELL_KNOWN_TABLES: Final = (253, 254, 255)
LOOPBACK_LENGTHS: Final = range(8, 33)

#: Emit every proxy identity's loopback rules before those that let others go. Off, the rules are
#: the reference's, where the first identity shadows the rest. Source: section 17.6 and 17.7.
ALL_IDENTITIES: Final = "AGENT_CAPTURE_ALL_PROXY_IDENTITIES"
#: Leave alone the DNS of everything that is excluded from capture. Off, excluded destinations are
#: asked through the agent all the same, as in the reference. Source: section 17.17.
DNS_EXCLUSIONS: Final = "AGENT_CAPTURE_DNS_EXCLUSIONS"


class Listeners(NamedTuple):
    """Envoy's ports."""

    outbound_port: int = 15001
    inbound_port: int = 15006
    tunnel_port: int = 15008


class Proxy(NamedTuple):
    """By whom the proxy's own traffic is sent."""

    uids: tuple[str, ...] = (PROXY_ID,)
    gids: tuple[str, ...] = (PROXY_ID,)
    all_identities: bool = False  #: see ALL_IDENTITIES


class Inbound(NamedTuple):
    """What is captured of the connections that come in."""

    mode: Mode = "REDIRECT"
    ports: Selection = Selection()
    exclude_ports: tuple[str, ...] = ()
    mark: int = 1337  #: TPROXY only; so is the next
    route_table: int = 133


class Outbound(NamedTuple):
    """What is captured of the connections that go out."""

    ranges: Ranges = Ranges()
    exclude_ranges: Ranges = Ranges()
    ports: tuple[str, ...] = ()
    exclude_ports: tuple[str, ...] = ()
    groups: Selection = Selection(is_all=True)
    exclude_groups: tuple[str, ...] = ()
    loopback_ipv4: str = DEFAULT_LOOPBACK  #: destinations that count as localhost

    @property
    def has_loopback(self) -> bool:
        """Return whether a loopback block is captured on purpose."""
        blocks = self.ranges.v4 + self.ranges.v6
        return any(ip_address(block.partition("/")[0]).is_loopback for block in blocks)


class DnsCapture(NamedTuple):
    """DNS goes to the agent: to any server, or only what is meant for those named."""

    is_all: bool = False
    servers: Servers = Servers()
    has_exclusions: bool = False  #: see DNS_EXCLUSIONS


class CaptureConfig(NamedTuple):
    """All that decides the rules."""

    listeners: Listeners = Listeners()
    proxy: Proxy = Proxy()
    inbound: Inbound = Inbound()
    outbound: Outbound = Outbound()
    dns: DnsCapture | None = None  #: None leaves DNS alone
    exclude_interfaces: tuple[str, ...] = ()
    virtual_interfaces: tuple[str, ...] = ()  #: their inbound traffic is outbound
    drop_invalid: bool = False
    families: Families = Families(ipv6=False, has_ipv4=True, host_ip="")


class Actions(NamedTuple):
    """What is to be done with the rules."""

    dry_run: bool = False
    only_compare: bool = False  #: show what would change
    dry_run_file: str = ""  #: where the dry run's transcript goes
    skip_rule_apply: bool = False
    run_validation: bool = False
    reconcile: bool = False
    cleanup_only: bool = False
    force_apply: bool = False
    native_nftables: bool = False
    cni_mode: bool = False
    network_namespace: str = ""
    forced_variant: Variant | None = None
    backend: Backend = ""  #: empty: the tools, or libiptc where there are none


def needs_account(flags: Parsed) -> bool:
    """Return whether the user named by ENVOY_USER is to be looked up."""
    return not flags.text("proxy-uid").strip(" ,")


def needs_resolv_conf(flags: Parsed) -> bool:
    """Return whether /etc/resolv.conf is to be read."""
    return flags.is_on("redirect-dns") and not flags.is_on("capture-all-dns")


class Settings(NamedTuple):
    """The command line and what surrounds it, understood."""

    config: CaptureConfig
    actions: Actions
    warnings: tuple[str, ...]


def parse_settings(
    flags: Parsed, environ: Mapping[str, str], facts: HostFacts, *, explained: Family | None = None
) -> Settings:
    """Return what is to be captured and done.

    Args:
        flags: the command line.
        environ: variables without a flag.
        facts: what was read from the host.
        explained: family of the flow that is only to be explained; such a one needs no address.

    Raises:
        ConfigError: something is unusable; it lists every problem.

    Source: traffic-capture.md sections 3.1 and 3.2.
    """
    reader = ListReader()
    warnings = list(flags.warnings)
    families = _families(flags, facts, explained, reader, warnings)
    config = _config(flags, environ, facts, families, reader, warnings)
    actions = _actions(flags, environ, reader)
    if reader.problems:
        raise ConfigError(reader.problems)
    return Settings(config, actions, tuple(warnings))


def _actions(flags: Parsed, environ: Mapping[str, str], reader: ListReader) -> Actions:
    forced = flags.text("force-iptables-binary")
    if forced not in FORCED:
        reader.problems.append(
            f"--force-iptables-binary={forced!r}: expected 'legacy', 'nft' or nothing"
        )
    backend = flags.text("backend")
    if backend not in BACKENDS:
        reader.problems.append(
            f"--backend={backend!r}: expected {', '.join(filter(None, BACKENDS))}"
        )
    native = flags.is_on("native-nftables")
    if native and backend in ("iptables", "libiptc"):
        reader.problems.append(_contradiction(backend, "--native-nftables (NATIVE_NFTABLES)"))
    if forced and (backend == "nft" or (backend, forced) == ("libiptc", "nft")):
        other = f"--force-iptables-binary={forced} (FORCE_IPTABLES_BINARY)"
        reader.problems.append(_contradiction(backend, other))
    return Actions(
        dry_run=flags.is_on("dry-run"),
        only_compare=flags.is_on("plan"),
        dry_run_file=environ.get("DRY_RUN_FILE_PATH", ""),
        skip_rule_apply=flags.is_on("skip-rule-apply"),
        run_validation=flags.is_on("run-validation"),
        reconcile=flags.is_on("reconcile"),
        cleanup_only=flags.is_on("cleanup-only"),
        force_apply=flags.is_on("force-apply"),
        native_nftables=native or backend == "nft",
        cni_mode=flags.is_on("cni-mode"),
        network_namespace=flags.text("network-namespace"),
        forced_variant="libiptc" if backend == "libiptc" else FORCED.get(forced),
        backend=BACKENDS.get(backend, ""),
    )


def _contradiction(backend: str, other: str) -> str:
    return f"--backend={backend} (AGENT_CAPTURE_BACKEND) and {other}: expected only one of the two"


def _families(
    flags: Parsed,
    facts: HostFacts,
    explained: Family | None,
    reader: ListReader,
    warnings: list[str],
) -> Families:
    """Return which families are captured; of a flow elsewhere, its own counts as one of them."""
    has_dual_stack = flags.is_on("dual-stack")
    found = host.families(facts.addresses, dual_stack=has_dual_stack)
    if found is None and explained is None:
        reader.problems.append("no valid local IP address found on any interface")
    if explained == IPV6 and (found is None or has_dual_stack):
        return Families(ipv6=True, has_ipv4=found is not None and found.has_ipv4, host_ip="")
    families = found or Families(ipv6=False, has_ipv4=True, host_ip="")
    if families.uncaptured_ipv6 and explained != IPV4 and not flags.is_on("cleanup-only"):
        warnings.append(
            f"IPv6 traffic of {families.uncaptured_ipv6} bypasses Envoy: "
            "--dual-stack or ISTIO_DUAL_STACK=true captures it"
        )
    return families


def _config(  # noqa: PLR0917 - what a configuration is made of
    flags: Parsed,
    environ: Mapping[str, str],
    facts: HostFacts,
    families: Families,
    reader: ListReader,
    warnings: list[str],
) -> CaptureConfig:
    dns = _dns(flags, facts, families, reader, warnings)
    return CaptureConfig(
        listeners=_listeners(flags, reader),
        proxy=_proxy(flags, environ, facts, reader),
        inbound=_inbound(flags, reader),
        outbound=_outbound(flags, environ, reader),
        dns=dns and dns._replace(has_exclusions=_switch(environ, DNS_EXCLUSIONS, reader)),
        exclude_interfaces=_items(flags, reader, "istio-exclude-interfaces", lists.interface),
        virtual_interfaces=_items(flags, reader, "kube-virt-interfaces", lists.interface),
        drop_invalid=flags.is_on("drop-invalid"),
        families=families,
    )


def _items(flags: Parsed, reader: ListReader, name: str, check: lists.Check) -> tuple[str, ...]:
    return reader.items(f"--{name}", flags.text(name), check)


def _listeners(flags: Parsed, reader: ListReader) -> Listeners:
    def port(name: str) -> int:
        return reader.number(f"--{name}", flags.text(name), largest=MAX_PORT)

    return Listeners(
        outbound_port=port("envoy-port"),
        inbound_port=port("inbound-capture-port"),
        tunnel_port=port("inbound-tunnel-port"),
    )


def _proxy(
    flags: Parsed, environ: Mapping[str, str], facts: HostFacts, reader: ListReader
) -> Proxy:
    """Return the identities; a group not given is the looked-up user's, else the uid's number.

    Source: traffic-capture.md sections 3.1 steps 2 and 3, 17.24.
    """
    uids = _items(flags, reader, "proxy-uid", lists.owner)
    gids = _items(flags, reader, "proxy-gid", lists.owner)
    account = facts.proxy_account
    if needs_account(flags):
        uids = (str(account.uid),) if account else (PROXY_ID,)
        gids = gids or ((str(account.gid),) if account else (PROXY_ID,))
    return Proxy(uids, gids or uids, all_identities=_switch(environ, ALL_IDENTITIES, reader))


def _switch(environ: Mapping[str, str], name: str, reader: ListReader) -> bool:
    """Return a boolean that no flag sets, off unless given; a variable set to nothing is not."""
    text = environ.get(name) or "false"
    try:
        return parse_bool(text)
    except ValueError as error:
        reader.problems.append(f"{name}={text!r}: {error}")
        return False


def _inbound(flags: Parsed, reader: ListReader) -> Inbound:
    text = flags.text("istio-inbound-interception-mode")
    mode = MODES.get(text)
    if mode is None:
        reader.problems.append(
            f"--istio-inbound-interception-mode={text!r}: expected REDIRECT, TPROXY or NONE"
        )
    name = "istio-inbound-ports"
    ports = reader.selection(f"--{name}", flags.text(name), lists.ports)
    excluded = (
        _items(flags, reader, "istio-local-exclude-ports", lists.ports) if ports.is_all else ()
    )
    found = Inbound(mode=mode or "REDIRECT", ports=ports, exclude_ports=excluded)
    if mode != "TPROXY":
        return found
    mark, table = "istio-inbound-tproxy-mark", "istio-inbound-tproxy-route-table"
    found = found._replace(
        mark=reader.number(f"--{mark}", flags.text(mark), largest=LARGEST_MARK),
        route_table=reader.number(f"--{table}", flags.text(table), largest=LARGEST_MARK),
    )
    if found.route_table in WELL_KNOWN_TABLES:
        reader.problems.append(
            f"--{table}={found.route_table}: expected another table than "
            "253, 254 and 255, in which the system has its own routes"
        )
    return found


def _outbound(flags: Parsed, environ: Mapping[str, str], reader: ListReader) -> Outbound:
    include, exclude = "istio-service-cidr", "istio-service-exclude-cidr"
    groups, exclude_groups = _groups(environ, reader)
    return Outbound(
        ranges=reader.ranges(f"--{include}", flags.text(include), may_be_all=True),
        exclude_ranges=reader.ranges(f"--{exclude}", flags.text(exclude), may_be_all=False),
        ports=_items(flags, reader, "istio-outbound-ports", lists.ports),
        exclude_ports=_items(flags, reader, "istio-local-outbound-ports-exclude", lists.ports),
        groups=groups,
        exclude_groups=exclude_groups,
        loopback_ipv4=_loopback(environ, reader),
    )


def _groups(environ: Mapping[str, str], reader: ListReader) -> tuple[Selection, tuple[str, ...]]:
    include, exclude = "ISTIO_OUTBOUND_OWNER_GROUPS", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"
    groups = reader.selection(include, environ.get(include, "*"), lists.owner)
    if len(groups.items) > MAX_GROUPS:
        reader.problems.append(
            f"{include}: expected at most {MAX_GROUPS} groups, found {len(groups.items)}"
        )
    if not groups.is_all:
        return groups, ()
    return groups, reader.items(exclude, environ.get(exclude, ""), lists.owner)


def _loopback(environ: Mapping[str, str], reader: ListReader) -> str:
    name = "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"
    text = environ.get(name, DEFAULT_LOOPBACK)
    try:
        network = ip_interface(lists.cidr(text))
    except ValueError as error:
        reader.problems.append(f"{name}={text!r}: {error}")
        return DEFAULT_LOOPBACK
    if network.version != IPV4 or not network.ip.is_loopback:
        reader.problems.append(f"{name}={text!r}: expected an IPv4 loopback address, 127.x.x.x")
    elif network.network.prefixlen not in LOOPBACK_LENGTHS:
        reader.problems.append(f"{name}={text!r}: expected a prefix length in 8..32")
    return text


def _dns(
    flags: Parsed,
    facts: HostFacts,
    families: Families,
    reader: ListReader,
    warnings: list[str],
) -> DnsCapture | None:
    """Return DNS capture, or None where it is off or has no server of a captured family.

    Source: traffic-capture.md sections 3.1 step 5, 3.2 last paragraph, 17.21.
    """
    if not flags.is_on("redirect-dns"):
        return None
    if flags.is_on("capture-all-dns"):
        return DnsCapture(is_all=True)
    if facts.resolv_conf is None:
        reader.problems.append(f"failed to load /etc/resolv.conf: {facts.resolv_conf_problem}")
        return None
    servers, bad = host.dns_servers(facts.resolv_conf)
    warnings.extend(f"/etc/resolv.conf: skipping nameserver {text!r}, no address" for text in bad)
    if not servers.v4 and not (servers.v6 and families.ipv6):
        warnings.append(
            "REDIRECT_DNS is set, but CAPTURE_ALL_DNS is false, and no DNS servers provided. "
            "DNS capture disabled."
        )
        return None
    return DnsCapture(servers=servers)
