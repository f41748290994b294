"""The flags of `istio-iptables`, one table.

Source: traffic-capture.md section 2.1.
"""

from collections.abc import Sequence
from typing import Final

from iptables.flags import GLOBAL_FLAGS, Flag

OWN_FLAGS: Final = (
    Flag("envoy-port", "string", "15001", "Envoy's listener for outbound connections", "p"),
    Flag(
        "inbound-capture-port",
        "string",
        "15006",
        "Envoy's listener for inbound connections",
        "z",
        ("INBOUND_CAPTURE_PORT",),
    ),
    Flag(
        "inbound-tunnel-port",
        "string",
        "15008",
        "Envoy's listener for tunnelled connections, never redirected",
        "e",
        ("INBOUND_TUNNEL_PORT",),
    ),
    Flag(
        "proxy-uid",
        "string",
        "",
        "users whose traffic is the proxy's own, comma list; "
        "empty: the user named by ENVOY_USER, or else 1337",
        "u",
        ("PROXY_UID",),
    ),
    Flag(
        "proxy-gid",
        "string",
        "",
        "groups whose traffic is the proxy's own, comma list; empty: as --proxy-uid",
        "g",
        ("PROXY_GID",),
    ),
    Flag(
        "istio-inbound-interception-mode",
        "string",
        "",
        "REDIRECT, TPROXY, or NONE to capture nothing; empty is REDIRECT",
        "m",
        ("ISTIO_INBOUND_INTERCEPTION_MODE",),
    ),
    Flag(
        "istio-inbound-ports",
        "string",
        "",
        "inbound ports to capture, comma list; '*' for all, empty for none",
        "b",
        ("ISTIO_INBOUND_PORTS",),
    ),
    Flag(
        "istio-local-exclude-ports",
        "string",
        "",
        "inbound ports not captured, comma list; read where --istio-inbound-ports is '*'",
        "d",
        ("ISTIO_LOCAL_EXCLUDE_PORTS",),
    ),
    Flag(
        "istio-exclude-interfaces",
        "string",
        "",
        "interfaces exempt in both directions, comma list",
        "c",
        ("ISTIO_EXCLUDE_INTERFACES",),
    ),
    Flag(
        "istio-service-cidr",
        "string",
        "",
        "outbound destinations to capture, comma list of CIDRs; '*' for all, empty for none",
        "i",
        ("ISTIO_SERVICE_CIDR",),
    ),
    Flag(
        "istio-service-exclude-cidr",
        "string",
        "",
        "outbound destinations not captured, comma list of CIDRs",
        "x",
        ("ISTIO_SERVICE_EXCLUDE_CIDR",),
    ),
    Flag(
        "istio-outbound-ports",
        "string",
        "",
        "outbound ports captured whatever the destination, comma list",
        "q",
        ("ISTIO_OUTBOUND_PORTS",),
    ),
    Flag(
        "istio-local-outbound-ports-exclude",
        "string",
        "",
        "outbound ports never captured, TCP and UDP, comma list",
        "o",
        ("ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE",),
    ),
    Flag(
        "kube-virt-interfaces",
        "string",
        "",
        "virtual interfaces whose inbound traffic is captured as outbound, comma list",
        "k",
        ("KUBE_VIRT_INTERFACES",),
    ),
    Flag(
        "istio-inbound-tproxy-mark",
        "string",
        "1337",
        "mark of inbound packets in TPROXY mode",
        "t",
        ("ISTIO_INBOUND_TPROXY_MARK",),
    ),
    Flag(
        "istio-inbound-tproxy-route-table",
        "string",
        "133",
        "routing table of marked packets in TPROXY mode",
        "r",
        ("ISTIO_INBOUND_TPROXY_ROUTE_TABLE",),
    ),
    Flag(
        "dry-run",
        "bool",
        default=False,
        help="print what would be installed, with reasons; run and change nothing",
        short="n",
        env=("DRY_RUN",),
    ),
    Flag(
        "plan",
        "bool",
        default=False,
        help="print how the installed rules differ from what is asked for, and change nothing; "
        "exit status 2 if they do",
    ),
    Flag(
        "explain",
        "string",
        "",
        "print what becomes of a flow, rule by rule, and change nothing; a flow is "
        "'tcp|udp [uid=N] [gid=N] [in=IF|out=IF] SRC[:PORT] DST:PORT'",
    ),
    Flag(
        "live",
        "bool",
        default=False,
        help="with --explain: the rules that are installed decide, not those asked for",
    ),
    Flag("output", "string", "", "with --explain: 'json' for a JSON object, also written -o json"),
    Flag(
        "iptables-probe-port",
        "uint16",
        15002,
        "port that validation connects to",
        env=("IPTABLES_PROBE_PORT",),
    ),
    Flag("probe-timeout", "duration", 5.0, "how long validation may take", env=("PROBE_TIMEOUT",)),
    Flag(
        "skip-rule-apply",
        "bool",
        default=False,
        help="change no rules; at most validate them",
        env=("SKIP_RULE_APPLY",),
    ),
    Flag(
        "run-validation",
        "bool",
        default=False,
        help="check with real connections that traffic is captured",
        env=("RUN_VALIDATION",),
    ),
    Flag(
        "redirect-dns",
        "bool",
        default=False,
        help="capture DNS to the agent, on port 15053",
        env=("REDIRECT_DNS", "ISTIO_META_DNS_CAPTURE"),
    ),
    Flag(
        "capture-all-dns",
        "bool",
        default=False,
        help="with --redirect-dns: capture DNS to any server, not only to those of resolv.conf",
        env=("CAPTURE_ALL_DNS",),
    ),
    Flag(
        "drop-invalid",
        "bool",
        default=False,
        help="drop packets that connection tracking finds invalid, instead of resetting",
        env=("DROP_INVALID", "INVALID_DROP"),
    ),
    Flag(
        "dual-stack",
        "bool",
        default=False,
        help="capture IPv6 too where the first address is IPv4",
        env=("DUAL_STACK", "ISTIO_DUAL_STACK"),
    ),
    Flag(
        "network-namespace",
        "string",
        "",
        "file of the network namespace, the tools' lock in --cni-mode",
        env=("NETWORK_NAMESPACE",),
    ),
    Flag(
        "cni-mode",
        "bool",
        default=False,
        help="run the tools in a mount namespace of their own",
        env=("CNI_MODE",),
    ),
    Flag(
        "reconcile",
        "bool",
        default=False,
        help="replace rules of ours that differ from what is asked for",
        env=("RECONCILE",),
    ),
    Flag(
        "cleanup-only",
        "bool",
        default=False,
        help="remove everything of ours and install nothing",
        env=("CLEANUP_ONLY",),
    ),
    Flag(
        "force-apply",
        "bool",
        default=False,
        help="install anew even where nothing differs",
        env=("FORCE_APPLY",),
    ),
    Flag(
        "native-nftables",
        "bool",
        default=False,
        help="use nftables instead of iptables",
        env=("NATIVE_NFTABLES",),
    ),
    Flag(
        "backend",
        "string",
        "",
        "'iptables' for its programs, 'libiptc' for the legacy tables without them, 'nft' as "
        "--native-nftables; empty: the programs, or libiptc where there are none",
        env=("AGENT_CAPTURE_BACKEND",),
    ),
    Flag(
        "force-iptables-binary",
        "string",
        "",
        "'legacy' or 'nft': which iptables to use; empty: whichever fits",
        env=("FORCE_IPTABLES_BINARY",),
    ),
)

FLAGS: Final = (*OWN_FLAGS, *GLOBAL_FLAGS)


def spelled_out(argv: Sequence[str]) -> list[str]:
    """Return a command line in which `-o json` beside --explain is `--output=json`.

    Else -o is for ports, among which json is none.
    """
    words = list(argv)
    if not any(word.partition("=")[0] == "--explain" for word in words):
        return words
    for number, word in enumerate(words):
        if word in ("-ojson", "-o=json"):
            words[number] = "--output=json"
        elif words[number : number + 2] == ["-o", "json"]:
            words[number : number + 2] = ["--output=json"]
    return words
