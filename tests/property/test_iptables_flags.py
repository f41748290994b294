"""Any command line is read or refused in one line; any text has a normal form."""

from hypothesis import given
from hypothesis import strategies as st

from iptables import netlink
from iptables.flags import Parsed, UsageError, parse_flags
from iptables.normal import normal_form
from iptables.options import FLAGS

WORDS = st.one_of(
    st.text(max_size=8),
    st.sampled_from([f"--{flag.name}" for flag in FLAGS]),
    st.builds(
        "--{}={}".format, st.sampled_from([flag.name for flag in FLAGS]), st.text(max_size=5)
    ),
    st.builds("-{}{}".format, st.characters(codec="ascii"), st.text(max_size=3)),
)


def read(argv: list[str], *, unknown_ok: bool) -> Parsed | str:
    try:
        return parse_flags(FLAGS, argv, unknown_ok=unknown_ok)
    except UsageError as error:
        return str(error)


@given(argv=st.lists(WORDS, max_size=6), unknown_ok=st.booleans())
def test_any_words_are_read_or_refused_in_one_line(argv: list[str], *, unknown_ok: bool) -> None:
    found = read(argv, unknown_ok=unknown_ok)

    if isinstance(found, str):
        assert found.isprintable()
    else:
        assert set(found.values) == {flag.name for flag in FLAGS}
        assert found.given <= {*found.values, "help"}


@given(argv=st.lists(WORDS, max_size=6))
def test_skipping_unknown_flags_changes_nothing_where_all_are_known(argv: list[str]) -> None:
    strict = read(argv, unknown_ok=False)

    if isinstance(strict, Parsed):
        loose = read(argv, unknown_ok=True)
        assert isinstance(loose, Parsed)
        assert (loose.values, loose.positionals) == (strict.values, strict.positionals)


@given(spec=st.text(alphabet=st.sampled_from('-!jmpds "\\0/:,ab+'), max_size=40))
def test_any_rule_has_a_normal_form(spec: str) -> None:
    assert normal_form(spec) == normal_form(f" {spec} ")


@given(data=st.binary(max_size=200))
def test_any_datagram_is_read_to_its_end(data: bytes) -> None:
    assert sum(netlink.HEADER.size + len(each.body) for each in netlink.decode(data)) <= len(data)
