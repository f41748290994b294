import pytest

from agent.cgroup import (
    directories,
    memory_bytes,
    oom_kills,
    parse_memory,
    quota_cpus,
    shares_cpus,
    weight_cpus,
    workers,
)

UNIFIED = "0::/\n"
MACHINE = "0::/system.slice/istio.service\n"
HYBRID = "4:memory:/kubepods/pod1\n1:cpu,cpuacct:/kubepods/pod1\n0::/\n"


@pytest.mark.parametrize(
    ("membership", "controller", "expected"),
    [
        (UNIFIED, "cpu", ["/sys/fs/cgroup"]),
        (MACHINE, "memory", ["/sys/fs/cgroup/system.slice/istio.service", "/sys/fs/cgroup"]),
        (
            HYBRID,
            "cpu",
            ["/sys/fs/cgroup/cpu/kubepods/pod1", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup"],
        ),
        ("", "cpu", []),
        ("nonsense\n", "cpu", []),
    ],
)
def test_the_likeliest_place_comes_first(
    membership: str, controller: str, expected: list[str]
) -> None:
    assert directories(membership, controller) == expected


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [
        ("200000 100000\n", 2),
        ("50000 100000", 0.5),
        ("max 100000\n", 0),
        ("-1 100000", 0),
        ("100000 0", 0),
        ("", 0),
        (" ", 0),
    ],
)
def test_a_quota_is_so_many_cpus(quota: str, cpus: float) -> None:
    """Cases K2 and K4: both layouts, and no limit."""
    assert quota_cpus(quota) == cpus


@pytest.mark.parametrize(("shares", "cpus"), [("512\n", 0.5), ("2048", 2), ("", 0), ("-1", 0)])
def test_shares_are_what_was_requested(shares: str, cpus: float) -> None:
    assert shares_cpus(shares) == cpus


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("59\n", 1),  # 500m, by the newer formula of container runtimes
        ("20\n", 1),  # 500m, by the older one
        ("100", 1),  # one CPU
        ("174", 3),  # two, of which the whole number that weights are knows a little more
        ("0", 0),
        ("", 0),
        ("idle", 0),
    ],
)
def test_a_weight_is_so_many_workers(weight: str, expected: int) -> None:
    """Case K3."""
    assert workers(weight_cpus(weight)) == expected


@pytest.mark.parametrize(("cpus", "expected"), [(0, 0), (0.1, 1), (2, 2), (2.00001, 2), (2.5, 3)])
def test_workers_are_rounded_up(cpus: float, expected: int) -> None:
    assert workers(cpus) == expected


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("1073741824\n", 1 << 30), ("max\n", 0), ("9223372036854771712\n", 0), ("", 0)],
)
def test_a_memory_limit_is_a_number_of_bytes(limit: str, expected: int) -> None:
    assert memory_bytes(limit) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("512Mi", 512 << 20), ("1G", 10**9), ("4k", 4000), ("100", 100), ("0", 0), ("off", 0)],
)
def test_a_quantity_is_a_number_of_bytes(text: str, expected: int) -> None:
    assert parse_memory(text) == expected


@pytest.mark.parametrize("text", ["", "much", "-1", "1.5Gi", "Mi", "1 Mi", "٣"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected bytes such as"):
        parse_memory(text)


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        ("low 0\nhigh 0\nmax 12\noom 2\noom_kill 2\noom_group_kill 0\n", 2),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", 7),
        ("oom_kill_disable 0\nunder_oom 0\n", 0),
        ("oom_kill many\n", 0),
        ("", 0),
    ],
)
def test_kills_are_counted_by_both_versions(counters: str, expected: int) -> None:
    """Case V5."""
    assert oom_kills(counters) == expected
