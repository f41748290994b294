"""The one question to nftables that needs no nft: whether a table is there.

The iptables tools do not show tables of the family inet, so a run with them would not see that
ours are left of an earlier configuration; and most images and pods have no reason to run nft.

Source: linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h.
"""

import struct
from typing import Final

from iptables.netlink import attribute, encode

GET_TABLE: Final = 10 << 8 | 1  # NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE
FAMILY_INET: Final = 1  # NFPROTO_INET
TABLE_NAME: Final = 1  # NFTA_TABLE_NAME
GENERIC: Final = struct.Struct("=BBH")  # family, version, resource


def get_table(name: str) -> bytes:
    """Return the request for a table of the family inet, which is not there or answered."""
    head = GENERIC.pack(FAMILY_INET, 0, 0)
    return encode(GET_TABLE, 0, head + attribute(TABLE_NAME, name.encode() + b"\0"))
