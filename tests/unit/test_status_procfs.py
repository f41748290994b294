from agent.status.procfs import Usage, parse_boot_time, parse_octets, parse_rollup, parse_usage


def test_usage_is_read_behind_any_name() -> None:
    fields = ["S", *map(str, range(4, 53))]

    usage = parse_usage("42 (a b) (c) " + " ".join(fields))

    assert usage == Usage(cpu_ticks=14 + 15, start_ticks=22, virtual_bytes=23, resident_pages=24)


def test_the_boot_time_is_found() -> None:
    assert parse_boot_time("cpu 1 2\nbtime 1700000000\nx 1\n") == 1_700_000_000
    assert parse_boot_time("cpu 1 2\n") == 0


def test_octets_are_found_by_name() -> None:
    text = "TcpExt: A B\nTcpExt: 1 2\nIpExt: X InOctets OutOctets\nIpExt: 1 20 30\n"

    assert parse_octets(text) == (20, 30)
    assert parse_octets("TcpExt: A\nTcpExt: 1\n") == (0, 0)
    assert parse_octets("IpExt: X\nIpExt: 1\n") == (0, 0)


def test_sizes_of_memory_are_in_bytes() -> None:
    text = "55e-7ff ---p 00000000 00:00 0  [rollup]\nRss:      34560 kB\nAnonymous:   8 kB\n"

    assert parse_rollup(text) == {"Rss": 34560 * 1024, "Anonymous": 8 * 1024}
