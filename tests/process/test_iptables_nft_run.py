"""The nftables transaction against an nft that refuses, is old, or is not there."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from iptables.config import Actions, CaptureConfig, Inbound
from iptables.errors import CaptureError, SystemRefusedError
from iptables.host import Families
from iptables.lists import Selection
from iptables.log import Log
from iptables.nft import run
from iptables.nft.text import removal, transaction
from iptables.plan import plan
from tests.fakes.iptables_tools import Answer, FakeTools
from tests.fakes.nft import FakeNft

# As another user the lack of CAP_NET_ADMIN would explain every failure, and nothing be tried.
pytestmark = pytest.mark.root

IPV4 = Families(ipv6=False, has_ipv4=True, host_ip="")
CONFIG = CaptureConfig(inbound=Inbound(ports=Selection(is_all=True)), families=IPV4)
TEXT = transaction(plan(CONFIG, 4))
GOLDEN = Path(__file__).parents[1] / "golden" / "iptables-nft"
LISTED = (GOLDEN / "inbound-ports-wildcard.listed").read_text()
OURS = "table ip nat {\n\tchain ISTIO_OUTPUT {\n\t}\n}\n"
SAVED = "*nat\n:ISTIO_OUTPUT - [0:0]\n-A OUTPUT -j ISTIO_OUTPUT\nCOMMIT\n"
USUAL = Actions()


class Surroundings:
    """What is to change together with the rules; notes how that went, also from another process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    @property
    def events(self) -> list[str]:
        """Return what was told, and whether the block failed."""
        return self.path.read_text().splitlines()

    def note(self, event: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{event}\n")

    @contextmanager
    def __call__(self, made: Sequence[object], marks: Sequence[tuple[int, int]]) -> Iterator[None]:
        self.note(f"{len(made)} {list(marks)}")
        try:
            yield
        except CaptureError:
            self.note("undone")
            raise


Make = Callable[..., FakeNft]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a maker of an nft; nothing else is in PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def nft(**behaviour: str) -> FakeNft:
        return FakeNft(tmp_path, **behaviour)

    return nft


def iptables(directory: Path, **answers: Sequence[Answer]) -> FakeTools:
    """Make tools of the nft variant that have rules of ours; those of the other are not there."""
    usual: dict[str, Sequence[Answer]] = {
        "iptables_nft_save": [{"out": SAVED}],
        "ip6tables_nft_save": [{}],
        "iptables_nft_restore": [{}],
    }
    return FakeTools(directory, **{**usual, **answers})


def apply(actions: Actions = USUAL, around: run.Around | None = None) -> str:
    """Apply; return the log."""
    lines = io.StringIO()
    around = around or (lambda *_: nullcontext())
    run.apply(CONFIG, actions, {}, Log("debug", [lines]), record=None, around=around)
    return lines.getvalue()


def test_a_clean_namespace_gets_the_transaction_and_is_read_back(make: Make) -> None:
    nft = make()

    log = apply()

    assert nft.inputs == [TEXT]
    assert "read back: nat istio-output is missing" in log  # the fake forgets what it is given
    assert f"nftables rules programmed:\n{TEXT}" in log


def test_what_is_as_planned_is_left_alone(make: Make) -> None:
    nft = make(listing=LISTED)

    apply()

    assert nft.inputs == []


def test_a_cleanup_of_nothing_is_nothing(make: Make) -> None:
    nft = make()

    log = apply(Actions(cleanup_only=True))

    assert nft.inputs == []
    assert "There are no nftables rules to log" in log


@pytest.mark.parametrize(
    ("refuses", "named"),
    [
        ("redirect to", "table istio-proxy-nat needs the kernel modules nf_tables, nft_redir"),
        ("type nat", "table istio-proxy-nat needs the kernel modules nf_tables, nft_chain_nat"),
    ],
)
def test_a_missing_module_is_named_and_nothing_else_is_tried(
    make: Make, tmp_path: Path, refuses: str, named: str
) -> None:
    nft, around = make(refuses=refuses), Surroundings(tmp_path / "events")

    with pytest.raises(SystemRefusedError, match=named):
        apply(around=around)

    assert nft.inputs == [TEXT]
    assert around.events == ["0 []", "undone"]


@pytest.mark.parametrize("version", ["v1.0.0", "v0.9.8"])
def test_an_old_release_is_refused(make: Make, version: str) -> None:
    nft = make(version=version)

    with pytest.raises(SystemRefusedError, match=f"nft {version} is too old: expected v1.0.1"):
        apply()

    assert nft.inputs == []


def test_no_nft_at_all_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SystemRefusedError, match="nft is missing in the sidecar container image"):
        apply()


def test_no_nft_to_remove_old_tables_with_is_said_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(SystemRefusedError, match="rules of ours of an earlier configuration, but"):
        run.marks()


def test_rules_of_the_iptables_tools_go_after_the_new_ones_are_there(
    make: Make, tmp_path: Path
) -> None:
    nft, around = make(listing=OURS), Surroundings(tmp_path / "events")
    tools = iptables(tmp_path)

    apply(around=around)

    assert nft.inputs == [TEXT]
    (given,) = tools.inputs("iptables-nft-restore")
    assert "-D OUTPUT -j ISTIO_OUTPUT" in given
    assert around.events == ["1 []"]


def test_if_the_old_rules_cannot_be_removed_the_new_ones_are(make: Make, tmp_path: Path) -> None:
    nft, around = make(listing=OURS), Surroundings(tmp_path / "events")
    iptables(tmp_path, iptables_nft_restore=[{"status": 1, "err": "no"}])

    with pytest.raises(SystemRefusedError, match="iptables-nft-restore refused"):
        apply(around=around)

    assert nft.inputs == [TEXT, removal()]
    assert around.events[-1] == "undone"


def test_rules_that_no_tool_can_read_are_no_clean_state(make: Make) -> None:
    nft = make(listing=OURS)

    with pytest.raises(SystemRefusedError, match="iptables-nft has rules of ours, but: "):
        apply()

    assert nft.inputs == []


def test_another_backend_learns_the_marks_and_removes_the_tables(make: Make) -> None:
    nft = make(listing=(GOLDEN / "tproxy.listed").read_text())

    found = run.marks()
    run.remove(Log("none", [io.StringIO()]))

    assert found == [(4, 1337), (6, 1337)]
    assert nft.inputs == [removal()]
