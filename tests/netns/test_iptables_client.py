"""Addresses as the kernel has them, judged by another netlink library."""

import json
import sys
from typing import Any

import pytest
from pyroute2 import IPRoute

from tests.netns.namespaces import Namespace, namespace

pytestmark = pytest.mark.root

LIST = """
import json
import sys
from iptables import client
print(json.dumps(client.interface_addresses()))
"""


def listed(inside: Namespace) -> list[Any]:
    found: list[Any] = json.loads(inside.python(LIST))
    return found


def test_addresses_are_those_another_library_sees() -> None:
    with namespace("240.240.240.240/32", "2001:db8::7/64", "fd00::1/128") as inside:
        with IPRoute(netns=inside.name) as kernel:
            kernel.link("add", ifname="a0", kind="veth", peer="a1")
            (link,) = kernel.link_lookup(ifname="a0")
            kernel.addr("add", index=link, local="10.0.0.1", address="10.0.0.2", prefixlen=32)
            expected = {
                (item["index"], item.get_attr("IFA_LOCAL") or item.get_attr("IFA_ADDRESS"))
                for item in kernel.get_addr()
            }

        found = listed(inside)

    assert {(ifindex, address) for _, ifindex, _, address, _, _ in found} == expected
    assert ["a0", link, 4, "10.0.0.1", False, False] in found
    assert ["lo", 1, 6, "2001:db8::7", True, True] in found
    families = [family for _, _, family, _, _, _ in found]
    assert families == sorted(families)


def test_the_passthrough_address_is_added_once_and_removed_once() -> None:
    code = """
from iptables import client
print(client.add_passthrough_address(), client.add_passthrough_address())
print([item.address for item in client.interface_addresses() if item.address == "::6"])
print(client.remove_passthrough_address(), client.remove_passthrough_address())
print([item.address for item in client.interface_addresses() if item.address == "::6"])
"""
    with namespace() as inside:
        printed = inside.python(code)

    assert printed == "True False\n['::6']\nTrue False\n[]\n"


def test_without_net_admin_the_refusal_names_the_capability() -> None:
    code = """
from iptables import client, errors
for change in (client.add_passthrough_address, client.remove_passthrough_address):
    try:
        change()
    except errors.SystemRefusedError as error:
        print(error)
"""
    with namespace() as inside:
        wrapper = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
        printed = inside.run(sys.executable, "-c", code, wrapper=wrapper).stdout

    assert printed.splitlines() == [
        f"{doing} lo: Operation not permitted: the process needs CAP_NET_ADMIN"
        for doing in ("adding ::6/128 to", "removing ::6/128 from")
    ]
