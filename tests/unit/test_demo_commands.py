"""Who a program in the pod runs as is decided by words on a command line."""

from agent.demo.commands import (
    APPLICATION,
    ISTIO_INIT,
    ISTIO_PROXY,
    Credentials,
    enter,
    hold,
    look_around,
)


def test_a_network_is_held_by_a_program_that_dies_with_its_parent() -> None:
    assert hold(mounts=False) == [
        *("setpriv", "--pdeathsig=KILL", "--"),
        *("unshare", "--net", "--", "cat"),
    ]


def test_mounts_in_a_pod_are_invisible_outside() -> None:
    assert "--propagation=private" in hold(mounts=True)


def test_root_enters_the_network_as_it_is() -> None:
    assert enter(7, ["iptables-save", "-t", "nat"]) == [
        *("nsenter", "--target=7", "--net", "--"),
        *("env", "--chdir=/"),
        *("setpriv", "--pdeathsig=KILL", "--", "iptables-save", "-t", "nat"),
    ]


def test_the_sidecar_has_no_capability_and_cannot_get_one() -> None:
    assert enter(7, ["agent"], mounts=True, credentials=ISTIO_PROXY, directory="/pod") == [
        *("nsenter", "--target=7", "--net", "--mount", "--"),
        *("env", "--chdir=/pod"),
        *("setpriv", "--pdeathsig=KILL", "--reuid=1337", "--regid=1337", "--clear-groups"),
        *("--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--", "agent"),
    ]


def test_the_init_container_keeps_its_two_capabilities() -> None:
    assert "--bounding-set=-all,+net_admin,+net_raw" in enter(7, ["x"], credentials=ISTIO_INIT)


def test_the_application_is_somebody_else() -> None:
    assert Credentials(uid=1000, gid=1000) == APPLICATION


def test_a_user_is_told_the_way_into_the_pod_and_the_node() -> None:
    request = ["curl", "-i", "http://10.0.0.2/"]

    lines = look_around(7, 8, "/run/demo", ["/venv/bin/agent"], request, page="http://[::1]:1/")

    assert "the agent's page:        http://[::1]:1/" in lines
    assert "a shell in the pod:      nsenter -t 7 -n -m sh" in lines
    assert "a request from the node: nsenter -t 8 -n curl -i http://10.0.0.2/" in lines
    assert any(line.endswith("/venv/bin/agent request GET stats") for line in lines)


def test_a_program_whose_path_has_a_space_can_be_typed() -> None:
    program, request = ["/a b/python", "-m", "agent"], ["/a b/python", "-I"]

    lines = look_around(7, 8, "/run/demo", program, request, page="")

    assert any(line.endswith("nsenter -t 8 -n '/a b/python' -I") for line in lines)
    assert any(line.endswith("-m '/a b/python' -m agent request GET stats") for line in lines)
