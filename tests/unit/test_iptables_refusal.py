"""Refusals of the tools, as iptables 1.8.9 words them, become one line that says what to do."""

import pytest

from iptables.refusal import NEEDS_RIGHTS, cause, refusal, summary

INPUT = """* mangle
-A OUTPUT -j MARK --set-mark 1
COMMIT
* nat
-N ISTIO_OUTPUT
-A ISTIO_OUTPUT -p tcp -m multiport ! --dports 53,15008 -m owner --uid-owner 7 -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
COMMIT
"""


def test_the_refused_line_is_shown_with_the_modules_it_needs() -> None:
    stderr = (
        "iptables-nft-restore v1.8.9 (nf_tables): \n"
        "line 6: RULE_APPEND failed (Operation not supported): rule in chain ISTIO_OUTPUT\n"
    )

    line = refusal("iptables-nft-restore", 4, stderr, INPUT, "nft_compat")

    assert line == (
        "iptables-nft-restore refused line 6, '-A ISTIO_OUTPUT -p tcp -m multiport ! --dports "
        "53,15008 -m owner --uid-owner 7 -j ISTIO_REDIRECT': exit status 4: RULE_APPEND failed "
        "(Operation not supported): rule in chain ISTIO_OUTPUT (table nat needs the kernel "
        "modules nft_compat, xt_owner, xt_multiport)"
    )


def test_a_refused_commit_may_be_any_line_of_its_table() -> None:
    line = refusal(
        "ip6tables-legacy-restore", 1, "ip6tables-restore: line 8 failed\n", INPUT, "ip6table_{}"
    )

    assert "line 8, 'COMMIT': exit status 1 (" in line
    assert line.endswith(
        "ip6table_nat, xt_owner, xt_multiport, xt_REDIRECT; "
        "no reason is given: a seccomp profile may deny it)"
    )


def test_a_table_that_is_missing_is_named() -> None:
    stderr = (
        "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\n"
        "Error occurred at line: 4\nTry `iptables-restore -h' for more information.\n"
    )

    line = refusal("iptables-legacy-restore", 2, stderr, INPUT, "iptable_{}")

    assert line == (
        "iptables-legacy-restore refused line 4, '* nat': exit status 2: unable to initialize "
        "table 'nat' (table nat needs the kernel modules iptable_nat)"
    )


@pytest.mark.parametrize("stderr", ["", "line 99 failed\n"])
def test_a_refusal_without_line_or_reason_may_be_of_any_rule(stderr: str) -> None:
    line = refusal("iptables-restore", -9, stderr, INPUT, "iptable_{}")

    assert line.startswith(
        "iptables-restore refused its input: exit status -9 (table mangle, nat needs"
    )
    assert " iptable_mangle, iptable_nat, xt_owner" in line


def test_an_extension_that_the_kernel_lacks_is_named() -> None:
    stderr = (
        "Warning: Extension connmark revision 0 not supported, missing kernel module?\n"
        "iptables-nft-restore: line 7 failed: No such file or directory\n"
    )

    line = refusal("iptables-nft-restore", 1, stderr, INPUT, "nft_compat")

    assert line.endswith(
        "(table nat needs the kernel modules nft_compat, xt_REDIRECT, xt_connmark)"
    )


def test_a_refusal_with_a_reason_of_its_own_is_no_matter_of_modules() -> None:
    line = refusal("iptables-legacy-restore", 4, "Fatal: can't open lock\n", INPUT, "iptable_{}")

    assert line == (
        "iptables-legacy-restore refused its input: exit status 4: Fatal: can't open lock"
    )


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        ("iptables-nft-restore: line 3 failed: Chain already exists.\n", "Chain already exists."),
        ("iptables-restore: line 3 failed\n", ""),
        ("a\n\nb\nTry `x' for more.\n", "a; b"),
        ('iptables-restore v1.8.9 (legacy): unknown option "--x"\n', 'unknown option "--x"'),
    ],
)
def test_what_a_tool_said_fits_one_line(stderr: str, expected: str) -> None:
    assert summary(stderr) == expected


def test_without_the_capability_that_is_the_cause() -> None:
    assert cause("exit status 4: whatever", has_net_admin=False) == NEEDS_RIGHTS


@pytest.mark.parametrize(
    "words", ["Operation not permitted", "Permission denied (you must be root)"]
)
def test_what_is_denied_in_spite_of_it_is_denied_by_something_else(words: str) -> None:
    said = cause(f"nft: {words}", has_net_admin=True)

    assert said.startswith(f"nft: {words}: the process has CAP_NET_ADMIN, so a seccomp profile")


@pytest.mark.parametrize(
    "said", ["exit status 2: bad", "Operation not permitted: the process needs CAP_NET_ADMIN"]
)
def test_another_cause_stands_as_it_was_said(said: str) -> None:
    assert cause(said, has_net_admin=True) == said
