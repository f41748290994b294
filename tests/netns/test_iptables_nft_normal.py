"""Proof of nftables' normal form: whatever is planned, nft lists it as what was planned."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from iptables.config import Actions, CaptureConfig
from iptables.nft.listing import parse_listing
from iptables.nft.state import decide, differences, put_back
from iptables.nft.text import transaction
from iptables.plan import plan
from tests.netns.namespaces import Namespace, namespace
from tests.property.test_iptables_nft import configurations

pytestmark = [pytest.mark.root, pytest.mark.slow]

NAMES = {("--uid-owner", "root"): "0", ("--gid-owner", "root"): "0"}
LIST = ("nft", "-s", "-n", "list", "ruleset")


@pytest.fixture
def inside() -> Iterator[Namespace]:
    with namespace() as made:
        yield made


@settings(
    max_examples=30,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(config=configurations())
def test_what_is_installed_reads_back_as_planned(inside: Namespace, config: CaptureConfig) -> None:
    planned = plan(config, *config.families.captured)
    inside.run("nft", "-f", "-", text=f"flush ruleset\n{transaction(planned)}")
    listing = parse_listing(inside.run(*LIST).stdout)

    inside.run("nft", "-f", "-", text=put_back(listing))

    assert differences(planned, listing, NAMES) == []
    again = parse_listing(inside.run(*LIST).stdout)
    assert again == listing  # a listing is input that makes the same tables


@settings(
    max_examples=10,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(first=configurations(), second=configurations())
def test_one_configuration_replaces_another(
    inside: Namespace, first: CaptureConfig, second: CaptureConfig
) -> None:
    old, new = (plan(config, *config.families.captured) for config in (first, second))
    inside.run("nft", "-f", "-", text=f"flush ruleset\n{transaction(old)}")

    change = decide(new, parse_listing(inside.run(*LIST).stdout), Actions(), NAMES)
    inside.run("nft", "-f", "-", text=change.text)

    assert differences(new, parse_listing(inside.run(*LIST).stdout), NAMES) == []
