"""Proof of the normal form: whatever is planned, each variant prints it back in the same form."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings

from iptables import rules
from iptables.config import parse_settings
from iptables.flags import parse_flags
from iptables.host import HostFacts
from iptables.installed import NOTHING, differences, parse_saved, replace
from iptables.netlink import Family, InterfaceAddress
from iptables.options import FLAGS
from iptables.ownership import find_own
from iptables.plan import plan
from tests.netns.namespaces import Namespace, namespace
from tests.property.strategies_iptables import COMMAND_LINES, ENVIRONMENTS

pytestmark = [pytest.mark.root, pytest.mark.slow]

FACTS = HostFacts(
    addresses=(InterfaceAddress("eth0", 2, 4, "10.0.0.7", is_up=True, is_loopback=False),),
    resolv_conf="nameserver 10.96.0.10\nnameserver fd00::10\n",
)
NAMES = {("--uid-owner", "root"): "0", ("--gid-owner", "root"): "0"}


@pytest.fixture(scope="module")
def inside() -> Iterator[Namespace]:
    with namespace() as made:
        yield made


@pytest.mark.parametrize("mode", ["REDIRECT", "TPROXY"])
@pytest.mark.parametrize(
    "tool", ["iptables-nft", "iptables-legacy", "ip6tables-nft", "ip6tables-legacy"]
)
@hypothesis_settings(
    max_examples=12,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(argv=COMMAND_LINES, environ=ENVIRONMENTS)
def test_what_is_installed_reads_back_as_planned(
    inside: Namespace, tool: str, mode: str, argv: list[str], environ: dict[str, str]
) -> None:
    family: Family = 6 if tool.startswith("ip6") else 4
    flags = parse_flags(FLAGS, [*argv, "-m", mode], environ=environ)
    planned = plan(parse_settings(flags, environ, FACTS).config, family)

    inside.run(f"{tool}-restore", "--noflush", text=rules.render_plan(planned))
    own = find_own(parse_saved(inside.run(f"{tool}-save").stdout), planned)
    inside.run(f"{tool}-restore", "--noflush", text=replace(own, ()))

    assert differences(planned, own, NAMES) == []
    left = parse_saved(inside.run(f"{tool}-save").stdout)
    assert not any(left.values())
    assert find_own(left, planned) == NOTHING
