"""What the user is told when nft refuses its input."""

import pytest

from iptables.nft.refusal import refusal

TEXT = """\
add table inet istio-proxy-nat
add chain inet istio-proxy-nat output { type nat hook output priority -100 ; }
add rule inet istio-proxy-nat istio-redirect meta l4proto tcp counter redirect to :15001
add rule inet istio-proxy-mangle istio-tproxy tproxy ip to :15006 meta mark set 7 counter accept
add rule inet istio-proxy-raw istio-inbound udp sport 53 counter ct zone set 1
add rule inet istio-proxy-nat istio-output skgid nobody9 counter return
"""


def said(line: int, reason: str = "Could not process rule: No such file or directory") -> str:
    return f"/dev/stdin:{line}:1-9: Error: {reason}\n{TEXT.splitlines()[line - 1]}\n^^^^^^^^^\n"


@pytest.mark.parametrize(
    ("line", "table", "modules"),
    [
        (1, "istio-proxy-nat", "nf_tables"),
        (2, "istio-proxy-nat", "nf_tables, nft_chain_nat"),
        (3, "istio-proxy-nat", "nf_tables, nft_redir"),
        (4, "istio-proxy-mangle", "nf_tables, nft_tproxy"),
        (5, "istio-proxy-raw", "nf_tables, nft_ct"),
    ],
)
def test_a_missing_part_of_the_kernel_is_named_with_its_table(
    line: int, table: str, modules: str
) -> None:
    assert refusal(1, said(line), TEXT) == (
        f"nftables run failed: nft refused '{TEXT.splitlines()[line - 1]}': "
        "Could not process rule: No such file or directory "
        f"(table {table} needs the kernel modules {modules})"
    )


def test_a_wrong_rule_blames_no_module() -> None:
    assert refusal(1, said(6, "Group does not exist"), TEXT) == (
        "nftables run failed: nft refused 'add rule inet istio-proxy-nat istio-output "
        "skgid nobody9 counter return': Group does not exist"
    )


def test_what_names_no_line_is_passed_on_as_one() -> None:
    stderr = "netlink: Error: cache initialization failed:\nOperation not permitted\n"

    assert refusal(1, stderr, TEXT) == (
        "nftables run failed: nft: exit status 1: "
        "netlink: Error: cache initialization failed:; Operation not permitted"
    )


def test_silence_is_an_answer_too() -> None:
    assert refusal(-9, "", "") == "nftables run failed: nft: exit status -9"
    assert "exit status 1" in refusal(1, said(6), "")
