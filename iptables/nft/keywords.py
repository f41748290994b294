"""Words that nft does not read as a plain string: as names they need quotes.

Some are of later releases than the ones tried. One too many does no harm: a quoted name is the
same name.

Source: traffic-capture.md section 17.28; nftables src/scanner.l.
"""

from typing import Final

TEXT: Final = """
accept add ah all and auto-merge bridge cgroup cgroupv2 chain comment comp constant continue counter
counters cpu create ct datagram day dccp define delete describe destroy device devices dnat drop dst
dup dynamic egress element elements eq esp ether exists expires export exthdr fib flags flow flows
flowtable flowtables flush frag fwd gc-interval ge geneve get goto gre gretap gt handle hash hbh
helper hook hooks hour ibriport ibrname icmp icmp6 icmpv6 icmpx igmp iif iifgroup iifname iifpname
iiftype import in include index inet insert interval ip ip6 ipsec jhash jump l2tp last le length
limit limits list log lshift lt maglev map maps mark masquerade meta meter meters mh missing mod
monitor ne netdev nexthop nftrace not notrack numgen obriport obrname offload oif oifgroup oifname
oifpname oiftype or osf performance pkttype policy position priority queue quota quotas random
redefine redirect reject rename replace reset return rshift rt rt0 rt2 rt4 rtclassid rule rules
ruleset sctp secmark secmarks set sets size skgid skuid snat socket srh string symhash synproxy
synproxys table tables tcp th time timeout timeouts tproxy type typeof udp udplite undefine update
verdict vlan vmap vxlan xor xt
"""
KEYWORDS: Final = frozenset(TEXT.split())
