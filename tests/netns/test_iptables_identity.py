"""What is left of what was asked for before: nothing, and nothing of others is changed by it."""

import sys
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyroute2 import IPRoute

from tests.netns.namespaces import Namespace, namespace
from tests.property.strategies_iptables import COMMAND_LINES, ENVIRONMENTS, FOREIGN_RULES, MODES

pytestmark = [pytest.mark.root, pytest.mark.slow]

TOOLS = ("iptables-legacy", "iptables-nft", "ip6tables-legacy", "ip6tables-nft")
TABLES = ("filter", "mangle", "nat", "raw")
#: Applied twice: the second time nothing may be left to do.
RUN = """
import os, sys
from iptables.cli import main
argv = sys.argv[1:] + ["--log_target=stderr"]
sys.exit(main(argv, os.environ) or main(argv, os.environ))
"""


@pytest.fixture(scope="module")
def inside() -> Iterator[Namespace]:
    with namespace("240.240.240.240/32", "2001:db8::7/128") as made:
        yield made


def dump(inside: Namespace) -> dict[str, list[str]]:
    found = {}
    for tool in TOOLS:
        lines = inside.run(f"{tool}-save").stdout.splitlines()
        found[tool] = [line for line in lines if line.startswith(("-A", "*", ":FOREIGN", ":ISTIO"))]
    return {tool: [line for line in lines if line[0] != "*"] for tool, lines in found.items()}


def alias(inside: Namespace) -> str | None:
    with IPRoute(netns=inside.name) as kernel:
        (lo,) = kernel.get_links(1)
    found: str | None = lo.get_attr("IFLA_IFALIAS")
    return found


def install(inside: Namespace, tool: str, rules: Sequence[str]) -> None:
    text = ""
    for rule in rules:
        table, chain, spec = rule.split(" ", 2)
        text += f"*{table}\n:FOREIGN - [0:0]\n-A {chain} {spec}\nCOMMIT\n"
    inside.run(f"{tool}-restore", "--noflush", text=text)


def flush(inside: Namespace) -> None:
    for tool in TOOLS:
        inside.run(f"{tool}-restore", text="".join(f"*{table}\nCOMMIT\n" for table in TABLES))


@pytest.mark.parametrize("family", ["iptables", "ip6tables"])
@hypothesis_settings(
    max_examples=8,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    argv=COMMAND_LINES,
    environ=ENVIRONMENTS,
    foreign=FOREIGN_RULES,
    variant=st.sampled_from(["nft", "legacy"]),
    forced=st.sampled_from(["", "nft", "legacy"]),
    is_dual_stack=st.booleans(),
)
def test_applying_and_cleaning_up_is_no_change(
    inside: Namespace,
    family: str,
    *,
    argv: list[str],
    environ: dict[str, str],
    foreign: list[str],
    variant: str,
    forced: str,
    is_dual_stack: bool,
) -> None:
    """Case I18."""
    flush(inside)
    install(inside, f"{family}-{variant}", foreign)
    before = dump(inside)
    words = [*argv, f"--dual-stack={is_dual_stack}", f"--force-iptables-binary={forced}"]

    applied = inside.run(sys.executable, "-c", RUN, *words, environ=environ)
    between = dump(inside)
    inside.run(sys.executable, "-c", RUN, *words, "--cleanup-only", environ=environ)

    assert dump(inside) == before != between
    assert alias(inside) is None
    assert applied.stderr.count("Running iptables restore") == 1 + is_dual_stack
    assert "read back" not in applied.stderr


BACKENDS = {
    "nft": ("nft", ("--force-iptables-binary=nft",)),
    "legacy": ("legacy", ("--force-iptables-binary=legacy",)),
    "libiptc": ("legacy", ("--backend=libiptc",)),
    "nftables": ("nft", ("--native-nftables",)),
}
#: One configuration after another, in one process: it is faster.
RUN_BOTH = """
import os, sys
from iptables.cli import main
for argv in sys.argv[1].split(" ; "):
    if status := main([*argv.split(), "--reconcile", "--log_target=stderr"], os.environ):
        sys.exit(status)
"""


@pytest.mark.parametrize("backend", BACKENDS)
@hypothesis_settings(
    max_examples=5,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(first=COMMAND_LINES, second=COMMAND_LINES, foreign=FOREIGN_RULES, mode=MODES)
def test_a_configuration_after_another_is_that_configuration_alone(
    inside: Namespace,
    backend: str,
    *,
    first: list[str],
    second: list[str],
    foreign: list[str],
    mode: str,
) -> None:
    """Also the rules of interfaces, which look like anybody's."""
    variant, flags = BACKENDS[backend]
    first = [*first, "-m", mode, *flags]
    second = [*second, *flags]
    left = []
    for runs in ([second], [first, second]):
        flush(inside)
        install(inside, f"iptables-{variant}", foreign)
        before = dump(inside)
        done = inside.run(sys.executable, "-c", RUN_BOTH, " ; ".join(map(" ".join, runs)))
        assert "which others may have put there" not in done.stderr
        left.append((dump(inside), listed(inside), alias(inside)))
        inside.run(sys.executable, "-c", RUN_BOTH, " ".join([*second, "--cleanup-only"]))
        assert (dump(inside), listed(inside), alias(inside)) == (before, "", None)

    assert left[0] == left[1]


def listed(inside: Namespace) -> str:
    """Return our tables of nftables."""
    names = ("nat", "mangle", "raw")
    tables = [f"istio-proxy-{name}" for name in names]
    shown = [inside.run("nft", "-s", "list", "table", "inet", name, check=False) for name in tables]
    return "".join(each.stdout for each in shown)


def test_a_record_that_cannot_be_kept_is_said_and_its_rules_are_warned_about(
    inside: Namespace,
) -> None:
    flush(inside)
    with IPRoute(netns=inside.name) as kernel:
        kernel.link("set", index=1, ifalias="the operator's")
    runs = "-u 3 -c eth1 ; -u 3 -c eth2 ; -u 3 --cleanup-only"

    done = inside.run(sys.executable, "-c", RUN_BOTH, runs)

    assert alias(inside) == "the operator's"
    assert "cannot be noted: lo has the alias 'the operator's'" in done.stderr
    assert "nat PREROUTING keeps '-i eth1 -j RETURN', which others may have put" in done.stderr
    with IPRoute(netns=inside.name) as kernel:
        kernel.link("set", index=1, ifalias="")


def test_more_interfaces_than_can_be_noted_are_not_noted_wrongly(inside: Namespace) -> None:
    """A note of the configuration before would make rules of this one somebody else's."""
    flush(inside)
    many = ",".join(f"interface{number:06}" for number in range(20))
    runs = f"-u 3 -c eth1 ; -u 3 -c {many} ; -u 3 -c {many}"

    done = inside.run(sys.executable, "-c", RUN_BOTH, runs)
    noted = alias(inside)
    inside.run(sys.executable, "-c", RUN_BOTH, f"-u 3 -c {many} --cleanup-only")

    assert "there are too many for an alias of lo" in done.stderr
    assert "reconciliation not needed" in done.stderr
    assert noted is None
    assert not any(dump(inside).values())
