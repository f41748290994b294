from collections.abc import Iterator

import pytest

from agent.lifecycle.listeners import listening, socket_inode

HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid"
IPV4 = (
    "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0"
    " 24001 1 0000000000000000 100 0 0 10 0"
)
IPV6 = (
    "   1: 00000000000000000000000000000000:3A9E 00000000000000000000000000000000:0000 0A"
    " 00000000:00000000 00:00000000 00000000  1337        0 24002 1 0000000000000000 100 0 0 10 0"
)
CONNECTED = IPV4.replace(" 0A ", " 01 ").replace("24001", "24003")


def test_listening_sockets_are_known_by_their_inodes() -> None:
    assert listening([HEADING, IPV4, IPV6, CONNECTED]) == {24001: 8080, 24002: 15006}


def test_connections_are_not_read_because_they_may_be_many() -> None:
    def table() -> Iterator[str]:
        yield from (HEADING, IPV4, CONNECTED)
        raise AssertionError("read on behind the first connection")

    assert listening(table()) == {24001: 8080}


@pytest.mark.parametrize("table", [[], [HEADING]])
def test_nobody_may_listen(table: list[str]) -> None:
    assert listening(table) == {}


@pytest.mark.parametrize(
    ("link", "inode"), [("socket:[24001]", 24001), ("/dev/null", None), ("pipe:[5]", None)]
)
def test_sockets_are_told_from_other_files(link: str, inode: int | None) -> None:
    assert socket_inode(link) == inode
