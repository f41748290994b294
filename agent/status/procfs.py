"""What the kernel says of this process, as numbers.

Source: proc(5); status-lifecycle.md section 8.
"""

from typing import NamedTuple


class Usage(NamedTuple):
    """Of /proc/self/stat; times are in clock ticks, the start since boot."""

    cpu_ticks: int
    start_ticks: int
    virtual_bytes: int
    resident_pages: int


def parse_usage(stat: str) -> Usage:
    """Return the usage out of /proc/self/stat; the name in it may hold blanks and brackets."""
    fields = stat.rpartition(")")[2].split()
    return Usage(
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        virtual_bytes=int(fields[20]),
        resident_pages=int(fields[21]),
    )


def parse_boot_time(stat: str) -> int:
    """Return the Unix time of the boot out of /proc/stat, 0 if it is not there."""
    for line in stat.splitlines():
        if line.startswith("btime "):
            return int(line.split()[1])
    return 0


def parse_octets(netstat: str) -> tuple[int, int]:
    """Return bytes received and sent by this network namespace, out of /proc/self/net/netstat."""
    lines = [line.split() for line in netstat.splitlines() if line.startswith("IpExt:")]
    if len(lines) != 2:  # noqa: PLR2004 -- names and values
        return 0, 0
    values = dict(zip(*lines, strict=False))
    return int(values.get("InOctets", 0)), int(values.get("OutOctets", 0))


def parse_rollup(smaps: str) -> dict[str, int]:
    """Return sizes in bytes by name, such as Anonymous, out of /proc/self/smaps_rollup."""
    sizes = {}
    for line in smaps.splitlines()[1:]:
        name, _, size = line.partition(":")
        sizes[name] = int(size.removesuffix(" kB")) * 1024
    return sizes
