"""What the README shows of --explain is what the command prints."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from tests.netns.namespaces import namespace

pytestmark = [pytest.mark.root, pytest.mark.slow]

README = (Path(__file__).parents[2] / "README.md").read_text()
EXAMPLES = re.findall(
    r"^```console\n# agent (istio-iptables .*)\n((?s:.*?))^```", README, re.MULTILINE
)


def test_there_are_three_examples() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize(("command", "shown"), EXAMPLES)
def test_an_example_is_what_is_printed(command: str, shown: str) -> None:
    with namespace() as pod:
        with IPRoute(netns=pod.name) as kernel:
            kernel.link("add", ifname="eth0", kind="veth", peer="far")
            (index,) = kernel.link_lookup(ifname="eth0")
            kernel.addr("add", index=index, address="10.244.7.3", prefixlen=24)

        done = pod.run(sys.executable, "-m", "agent", *shlex.split(command))

    assert done.stdout == shown
