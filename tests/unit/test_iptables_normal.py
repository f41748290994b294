"""Texts that mean the same have one normal form; texts that do not have two."""

import pytest

from iptables.normal import Clause, mark_of, normal_form, target, words

SAME = [
    ("-p tcp --dport 80 -j RETURN", "-p tcp -m tcp --dport 80 -j RETURN"),
    ("-p udp --dport 53 -d 10.0.0.1/32 -j X", "-d 10.0.0.1/32 -p udp -m udp --dport 53 -j X"),
    ("! -d 127.0.0.1/32 -o lo -j X", "-o lo ! -d 127.0.0.1 -j X"),
    ("-d 10.1.2.3/8 -j X", "-d 10.0.0.0/8 -j X"),
    ("-d 2001:DB8::7/32 -j X", "-d 2001:db8::/32 -j X"),
    ("-d 0.0.0.0/0 -s ::/0 -i + -j X", "-j X"),
    ("-p udp --dport 0:65535 -j X", "-p udp -m udp -j X"),
    ("-p udp --sport 5:5 -j X", "-p udp -m udp --sport 5 -j X"),
    ("-p 6 -j X", "-p tcp -j X"),
    ("-m owner ! --gid-owner 5-5 -j X", "-m owner ! --gid-owner 5 -j X"),
    ("-j REDIRECT --to-port 15053", "-j REDIRECT --to-ports 15053"),
    ("-j MARK --set-mark 1337", "-j MARK --set-xmark 0x539/0xffffffff"),
    ("-m mark ! --mark 1338 -j X", "-m mark ! --mark 0x53a -j X"),
    ("-j CONNMARK --save-mark",
     "-j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff"),
    ("-j TPROXY --tproxy-mark 1337/0xffffffff --on-port 15006",
     "-j TPROXY --on-port 15006 --on-ip :: --tproxy-mark 0x539/0xffffffff"),
]  # fmt: skip
DIFFERENT = [
    ("-d 10.0.0.0/8 -j X", "! -d 10.0.0.0/8 -j X"),
    ("-d 10.0.0.0/8 -j X", "-s 10.0.0.0/8 -j X"),
    ("! -d 0.0.0.0/0 -j X", "-j X"),
    ("-m mark --mark 1 -j X", "-m connmark --mark 1 -j X"),
    ("-m mark --mark 1/0xff -j X", "-m mark --mark 1 -j X"),
    ("-j X", "-j Y"),
    ("-j X", ""),
    ("-p tcp -j X", "-p udp -j X"),
    ("-j CONNMARK --save-mark --nfmask 0xff", "-j CONNMARK --save-mark"),
    ("-m owner ! --gid-owner 1 -m owner ! --gid-owner 2 -j X", "-m owner ! --gid-owner 1 -j X"),
    ("-m socket -j X", "-j X"),
    ("-p tcp ! --dport 80 -j X", "-p tcp --dport 80 -j X"),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_what_the_tool_prints_differently_has_one_form(first: str, second: str) -> None:
    assert normal_form(first) == normal_form(second)


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_what_means_something_else_has_another_form(first: str, second: str) -> None:
    assert normal_form(first) != normal_form(second)


def test_names_have_the_number_that_the_tool_prints() -> None:
    names = {("--gid-owner", "java"): "202", ("--uid-owner", "java"): "303"}

    assert normal_form("-m owner --gid-owner java -j X", names) == normal_form(
        "-m owner --gid-owner 202 -j X"
    )


def test_a_value_that_is_none_is_compared_as_it_stands() -> None:
    assert normal_form("-d example.com -j X") == (
        Clause("", "-d", "example.com", inverted=False),
        Clause("", "-j", "X", inverted=False),
    )


def test_quoted_words_hold_blanks() -> None:
    spec = r'-m comment --comment "a \"b\" -j c" -j X'

    assert words(spec) == ["-m", "comment", "--comment", 'a "b" -j c', "-j", "X"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [("-p tcp -j X", "X"), ("-g X", "X"), ("-p tcp", ""), ("", ""),
     ("-j REDIRECT --to-ports 1", "REDIRECT")],
)  # fmt: skip
def test_a_rule_leads_to_its_target(spec: str, expected: str) -> None:
    assert target(spec) == expected


def test_the_mark_that_a_tproxy_rule_gives_is_found() -> None:
    assert mark_of("-p tcp -j TPROXY --on-port 15006 --tproxy-mark 0x539/0xffffffff") == 1337
    assert mark_of("-p tcp -j TPROXY --tproxy-mark 1337") == 1337
    assert mark_of("-j MARK --set-xmark 0x539/0xffffffff") is None
