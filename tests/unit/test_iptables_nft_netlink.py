"""The request for a table, byte by byte."""

import sys

import pytest

from iptables.nft.netlink import get_table


@pytest.mark.skipif(sys.byteorder != "little", reason="numbers are in the machine's order")
def test_a_table_is_asked_for_by_its_name() -> None:
    assert get_table("ab").hex(" ", 4) == (
        "1c000000 "  # length
        "010a0100 "  # NFT_MSG_GETTABLE of nf_tables, a request
        "01000000 00000000 "  # sequence, port
        "01000000 "  # NFPROTO_INET
        "07000100 61620000"  # name
    )
