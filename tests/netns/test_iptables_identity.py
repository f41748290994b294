"""Applying and then cleaning up is no change, whatever was asked for and whatever was there."""

import sys
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.netns.namespaces import Namespace, namespace
from tests.property.strategies_iptables import COMMAND_LINES, ENVIRONMENTS, FOREIGN_RULES

pytestmark = [pytest.mark.root, pytest.mark.slow]

TOOLS = ("iptables-legacy", "iptables-nft", "ip6tables-legacy", "ip6tables-nft")
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


def install(inside: Namespace, tool: str, rules: Sequence[str]) -> None:
    text = ""
    for rule in rules:
        table, chain, spec = rule.split(" ", 2)
        text += f"*{table}\n:FOREIGN - [0:0]\n-A {chain} {spec}\nCOMMIT\n"
    inside.run(f"{tool}-restore", "--noflush", text=text)


def flush(inside: Namespace) -> None:
    for tool in TOOLS:
        for table in ("filter", "mangle", "nat", "raw"):
            inside.run(tool, "-t", table, "-F")
            inside.run(tool, "-t", table, "-X")


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
    assert applied.stderr.count("Running iptables restore") == 1 + is_dual_stack
    assert "read back" not in applied.stderr
