"""Capture configurations and foreign rules as users have them."""

from hypothesis import strategies as st

PORTS = st.sampled_from(["80", "443", "8000:9000", "0", "15020", "0:65535", "7:7"])
NICS = st.sampled_from(["eth1", "docker+", "bond0.100", "net-1"])
OWNERS = st.sampled_from(["0", "3", "1337", "1000-2000", "root", "5-5"])
GROUPS = st.sampled_from(["0", "202", "root", "1000-2000"])
CIDRS = st.sampled_from(
    [
        "10.1.2.3/8",
        "0.0.0.0/0",
        "127.1.2.3/32",
        "192.168.0.0/16",
        "2001:DB8::7/32",
        "::1/128",
        "::/0",
    ]
)


def comma(items: st.SearchStrategy[str], *, at_most: int = 2) -> st.SearchStrategy[str]:
    return st.lists(items, max_size=at_most).map(",".join)


def flag(name: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return values.map(lambda value: (f"--{name}={value}",))


def switch(name: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.sampled_from([(), (f"--{name}",)])


#: The words of a command line; all are valid together.
COMMAND_LINES: st.SearchStrategy[list[str]] = st.tuples(
    flag("istio-inbound-ports", st.one_of(st.just("*"), comma(PORTS))),
    flag("istio-local-exclude-ports", comma(PORTS)),
    flag("istio-service-cidr", st.one_of(st.just("*"), comma(CIDRS))),
    flag("istio-service-exclude-cidr", comma(CIDRS)),
    flag("istio-outbound-ports", comma(PORTS)),
    flag("istio-local-outbound-ports-exclude", comma(PORTS)),
    flag("istio-exclude-interfaces", comma(NICS)),
    flag("kube-virt-interfaces", comma(NICS)),
    flag("proxy-uid", comma(OWNERS)),
    flag("proxy-gid", comma(GROUPS)),
    switch("drop-invalid"),
    switch("redirect-dns"),
    switch("capture-all-dns"),
).map(lambda parts: [word for words in parts for word in words])

MODES: st.SearchStrategy[str] = st.sampled_from(["REDIRECT", "TPROXY"])

ENVIRONMENTS: st.SearchStrategy[dict[str, str]] = st.fixed_dictionaries(
    {},
    optional={
        "ISTIO_OUTBOUND_OWNER_GROUPS": st.one_of(st.just("*"), comma(GROUPS)),
        "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": comma(GROUPS),
        "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": st.sampled_from(["127.0.0.1/8", "127.0.0.1/32"]),
        "AGENT_CAPTURE_ALL_PROXY_IDENTITIES": st.sampled_from(["true", "false"]),
        "AGENT_CAPTURE_DNS_EXCLUSIONS": st.sampled_from(["true", "false"]),
    },
)

#: Rules of others, as 'table chain spec', in built-in chains and one of their own.
FOREIGN_RULES: st.SearchStrategy[list[str]] = st.lists(
    st.sampled_from(
        [
            "nat PREROUTING -p tcp --dport 9 -j RETURN",
            "nat PREROUTING -i eth7 -j RETURN",
            "nat PREROUTING -i eth1 -j RETURN",  # as one of ours may be
            "nat OUTPUT -o eth1 -j RETURN",
            "nat OUTPUT -j FOREIGN",
            "nat FOREIGN -p udp --dport 99 -j RETURN",
            'nat FOREIGN -m comment --comment "say ISTIO_ twice" -j RETURN',
            "mangle PREROUTING -p tcp -m mark --mark 7 -j RETURN",
            "mangle OUTPUT -j MARK --set-mark 9",
            "mangle PREROUTING -p tcp -m mark --mark 0x7/0xffffffff -j CONNMARK --save-mark",
            "mangle OUTPUT -p udp -o eth7 -m mark --mark 5 -j ACCEPT",  # TPROXY has such a one too
            "mangle OUTPUT -o eth1 -j RETURN",
            "raw OUTPUT -p udp --dport 99 -j CT --notrack",
            "raw PREROUTING -j FOREIGN",
            "filter INPUT -p tcp --dport 22 -j ACCEPT",
        ]
    ),
    unique=True,
    max_size=6,
)

#: Rules that others put somewhere while we capture.
LATER_RULES: st.SearchStrategy[list[str]] = st.lists(
    st.sampled_from(
        [
            "nat PREROUTING -i eth9 -j RETURN",
            "nat OUTPUT -o eth9 -j RETURN",
            "nat PREROUTING -i docker0 -j RETURN",
            "nat PREROUTING -p tcp --dport 9 -j RETURN",
            "mangle PREROUTING -i eth9 -j RETURN",
            "mangle OUTPUT -o eth9 -j RETURN",
            "raw PREROUTING -i eth9 -j RETURN",
        ]
    ),
    max_size=4,
)
