"""The transaction against tools that fail in every way the real ones do."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from iptables import rules, run
from iptables.config import Actions, CaptureConfig
from iptables.decide import Plans
from iptables.errors import SystemRefusedError
from iptables.host import Families
from iptables.installed import as_saved
from iptables.log import Log
from iptables.plan import plan
from tests.fakes.iptables_tools import Answer, FakeTools

# As another user the lack of CAP_NET_ADMIN would explain every failure, and nothing be tried.
pytestmark = pytest.mark.root

CONFIG = CaptureConfig()
PLANS: Plans = {4: plan(CONFIG, 4), 6: plan(CONFIG, 6)}
DROPPING = CONFIG._replace(drop_invalid=True)
TWO_TABLES: Plans = {4: plan(DROPPING, 4), 6: plan(DROPPING, 6)}
TEXT = rules.render_plan(PLANS[4])
IPV4 = Families(ipv6=False, has_ipv4=True, host_ip="")
BOTH = Families(ipv6=True, has_ipv4=True, host_ip="")
IPV6 = Families(ipv6=True, has_ipv4=False, host_ip="")
USUAL = Actions()
FINE: Sequence[Answer] = [{}]
FAILS: Sequence[Answer] = [{"status": 1, "err": "iptables-save: no support"}]
BUSY: Answer = {"status": 4, "err": "Another app is currently holding the xtables lock"}
INSTALLED = "".join(
    [
        "*nat\n",
        *(f":{chain} - [0:0]\n" for _, chain in as_saved(PLANS[4])),
        *(
            f"-A {chain} {spec}\n"
            for (_, chain), specs in as_saved(PLANS[4]).items()
            for spec in specs
        ),
        "COMMIT\n",
    ]
)

Make = Callable[..., FakeTools]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a maker of fake tools; those not named are not there."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def tools(**answers: Sequence[Answer]) -> FakeTools:
        return FakeTools(tmp_path, **answers)

    return tools


def apply(families: Families = IPV4, actions: Actions = USUAL, plans: Plans = PLANS) -> str:
    """Apply; return the log."""
    lines = io.StringIO()
    run.apply(plans, actions, families, {}, Log("debug", [lines]))
    return lines.getvalue()


def test_one_variant_is_enough(make: Make) -> None:
    """Cases I4 and I7."""
    tools = make(iptables_nft_save=FINE, iptables_nft_restore=FINE)

    apply()

    assert tools.inputs("iptables-nft-restore") == [TEXT]
    assert tools.calls("iptables-nft-restore") == ["--noflush"]


def test_the_legacy_tools_are_told_to_wait_for_their_lock(make: Make) -> None:
    tools = make(iptables_legacy_save=FINE, iptables_legacy_restore=FINE, iptables_nft_save=FAILS)

    apply()

    assert tools.calls("iptables-legacy-restore") == ["--noflush --wait=30"]


@pytest.mark.parametrize(
    ("version", "arguments"),
    [
        ("iptables v1.8.9 (legacy)", "--noflush --wait=30"),
        ("iptables v1.6.1", "--noflush"),
        ("iptables v1.8.9 (nf_tables)", "--noflush"),
        ("?", "--noflush"),
    ],
)
def test_tools_without_a_variant_wait_if_they_can(make: Make, version: str, arguments: str) -> None:
    tools = make(
        iptables=[{"out": version}], iptables_save=FINE, iptables_restore=FINE,
        ip6tables_nft_save=FINE,
    )  # fmt: skip

    apply()

    assert tools.calls("iptables-restore") == [arguments]


def test_legacy_in_use_whose_nat_table_is_missing_gives_way_to_nft(make: Make) -> None:
    """Case I3."""
    missing = "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'"
    tools = make(
        iptables_legacy_save=[{"out": "*filter\n-A INPUT -j ACCEPT\nCOMMIT\n"}],
        iptables_legacy_restore=[{"status": 2, "err": f"{missing}\nError occurred at line: 1\n"}],
        iptables_nft_save=FINE,
        iptables_nft_restore=FINE,
    )

    log = apply()

    assert tools.inputs("iptables-nft-restore") == [TEXT]
    assert "unable to initialize table 'nat'" in log
    assert "iptable_nat" in log


def test_what_every_variant_refuses_is_reported_with_all_reasons(make: Make) -> None:
    """Case I9."""
    unknown = (
        'iptables-restore v1.4.21 (x): unknown option "--to-ports"\nError occurred at line: 7\n'
    )
    tools = make(
        iptables_legacy_save=FINE,
        iptables_legacy_restore=[{"status": 2, "err": unknown}],
        iptables_nft_save=FINE,
        iptables_nft_restore=[{"status": 2, "err": unknown}],
    )

    with pytest.raises(SystemRefusedError) as raised:
        apply()

    text = str(raised.value)
    assert "iptables-nft-restore refused line 7, '-A ISTIO_REDIRECT -p tcp -j REDIRECT" in text
    assert "iptables-legacy-restore refused line 7" in text
    assert 'unknown option "--to-ports"' in text
    assert "xt_REDIRECT" in text
    assert "\n" not in text
    assert len(tools.calls("iptables-nft-restore")) == 1


def test_rules_that_another_tool_installed_meanwhile_are_looked_at_again(make: Make) -> None:
    exists = "iptables-restore: line 2 failed: Chain already exists."
    tools = make(
        iptables_nft_save=[{}, {"out": INSTALLED}],
        iptables_nft_restore=[{"status": 1, "err": exists}],
        iptables_legacy_save=FINE,
        iptables_legacy_restore=FINE,
    )

    log = apply()

    assert "the rules have changed meanwhile" in log
    assert "reconciliation not needed" in log
    assert tools.calls("iptables-legacy-restore") == []


def test_a_busy_tool_is_tried_three_times(make: Make) -> None:
    """Case I10."""
    tools = make(iptables_nft_save=FINE, iptables_nft_restore=[BUSY, BUSY, {}])

    apply()

    assert len(tools.calls("iptables-nft-restore")) == 3


def test_a_tool_that_stays_busy_is_an_error(make: Make) -> None:
    tools = make(iptables_nft_save=FINE, iptables_nft_restore=[BUSY])

    with pytest.raises(SystemRefusedError, match="holding the xtables lock"):
        apply()

    assert len(tools.calls("iptables-nft-restore")) == 3


@pytest.mark.parametrize("actions", [USUAL, Actions(cleanup_only=True), Actions(force_apply=True)])
def test_a_save_that_fails_is_an_error_and_nothing_is_changed(make: Make, actions: Actions) -> None:
    """Case I28. Source: traffic-capture.md section 17.26."""
    tools = make(iptables_nft_save=FAILS, iptables_nft_restore=FINE)

    with pytest.raises(SystemRefusedError) as raised:
        apply(actions=actions)

    assert "iptables-nft-save: exit status 1: no support" in str(raised.value)
    assert "iptables-legacy-save: not found in PATH" in str(raised.value)
    assert tools.calls("iptables-nft-restore") == []


def test_a_save_that_is_killed_is_not_taken_for_a_variant_that_cannot_be_used(make: Make) -> None:
    """Rules of ours may be in it, and the other variant's would capture what they capture."""
    tools = make(
        iptables_nft_save=[{"status": -9}], iptables_legacy_save=FINE, iptables_legacy_restore=FINE
    )

    with pytest.raises(SystemRefusedError) as raised:
        apply()

    assert str(raised.value) == (
        "iptables-nft-save: exit status -9: what is installed cannot be read"
    )
    assert tools.calls("iptables-legacy-restore") == []


def test_a_lock_that_stays_held_does_not_change_the_variant(make: Make) -> None:
    foreign: Sequence[Answer] = [{"out": "*nat\n-A OUTPUT -j OTHERS\nCOMMIT\n"}]
    tools = make(
        iptables_legacy_save=foreign,
        iptables_legacy_restore=[BUSY],
        iptables_nft_save=FINE,
        iptables_nft_restore=FINE,
    )

    with pytest.raises(SystemRefusedError, match="currently holding the xtables lock"):
        apply()

    assert tools.calls("iptables-nft-restore") == []


def test_an_ipv6_host_needs_no_ipv4_tools(make: Make) -> None:
    """Case I11."""
    tools = make(ip6tables_nft_save=FINE, ip6tables_nft_restore=FINE)

    log = apply(IPV6, Actions(backend="iptables"))

    assert len(tools.calls("ip6tables-nft-restore")) == 1
    assert "going on, as the host has no IPv4 address" in log


def test_a_missing_restore_is_named(make: Make) -> None:
    make(iptables_nft_save=FINE)

    with pytest.raises(SystemRefusedError, match="iptables-nft-restore: not found in PATH"):
        apply()


def test_where_ours_are_installed_no_other_variant_is_tried(make: Make) -> None:
    tools = make(
        iptables_nft_save=[{"out": INSTALLED}], iptables_nft_restore=[{"status": 1}],
        iptables_legacy_save=FINE, iptables_legacy_restore=FINE,
    )  # fmt: skip

    with pytest.raises(SystemRefusedError, match="iptables-nft-restore refused"):
        apply(actions=Actions(force_apply=True))

    assert tools.calls("iptables-legacy-restore") == []


def test_one_family_that_fails_has_the_other_put_back(make: Make) -> None:
    tools = make(
        iptables_nft_save=[{}, {"out": INSTALLED}],
        iptables_nft_restore=FINE,
        ip6tables_nft_save=FINE,
        ip6tables_nft_restore=[{"status": 2, "err": "unable to initialize table 'nat'"}],
    )

    with pytest.raises(SystemRefusedError, match="unable to initialize"):
        apply(BOTH)

    applied, undone = tools.inputs("iptables-nft-restore")
    assert applied == TEXT
    assert "-D OUTPUT -j ISTIO_OUTPUT" in undone
    assert "-N" not in undone


def test_what_goes_with_the_rules_and_fails_has_them_put_back(make: Make) -> None:
    tools = make(iptables_nft_save=[{}, {"out": INSTALLED}], iptables_nft_restore=FINE)

    def fail() -> None:
        raise SystemRefusedError("nft refused")

    with pytest.raises(SystemRefusedError, match=r"^nft refused$"):
        run.apply(PLANS, USUAL, IPV4, {}, Log("none"), beside=run.Beside(afterwards=fail))

    applied, undone = tools.inputs("iptables-nft-restore")
    assert applied == TEXT
    assert "-D OUTPUT -j ISTIO_OUTPUT" in undone
    assert "-N" not in undone


def test_what_cannot_be_put_back_is_said_and_nothing_else_tried(make: Make) -> None:
    tools = make(
        iptables_legacy_save=FINE,
        iptables_nft_save=[{}, {"out": INSTALLED}],
        iptables_nft_restore=[{}, {"status": 1, "err": "no more"}],
        ip6tables_nft_save=[{}, {"status": 1, "err": "gone"}],
        ip6tables_nft_restore=[{"status": 4, "err": "first cause"}],
    )

    with pytest.raises(SystemRefusedError) as raised:
        apply(BOTH, plans=TWO_TABLES)

    text = str(raised.value)
    assert text.index("first cause") < text.index("putting its rules back failed")
    assert "its rules cannot be put back: ip6tables-nft-save: exit status 1: gone" in text
    assert tools.calls("iptables-legacy-restore") == []


def test_rules_that_read_back_otherwise_are_warned_about(make: Make) -> None:
    make(iptables_nft_save=[{}, {"out": INSTALLED.replace("15006", "15007")}],
         iptables_nft_restore=FINE)  # fmt: skip

    log = apply()

    assert "read back, IPv4: nat ISTIO_IN_REDIRECT rule 1" in log


def test_the_final_state_is_logged(make: Make) -> None:
    make(iptables_nft_save=[{"out": INSTALLED}])

    log = apply()

    assert f"Final iptables state (IPv4):\n{INSTALLED}" in log
    assert "warn" not in log
