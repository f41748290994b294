import pytest

from agent.lifecycle.drain import (
    Activity,
    Watch,
    count_connections,
    count_requests,
    drain_target,
    pause_seconds,
    see,
)

PORTS = (15021, 15090)


def connections(*lines: str) -> tuple[Activity | None, list[str]]:
    odd: list[str] = []
    return count_connections("\n".join(lines), PORTS, odd.append), odd


def requests(*lines: str) -> Activity | None:
    return count_requests("\n".join(lines), PORTS, lambda _: None)


def test_only_the_listeners_of_the_application_are_counted() -> None:
    assert connections(
        "http.inbound_0.0.0.0_8080;.downstream_cx_active: 7",
        "listener.10.1.2.3_8080.downstream_cx_active: 3",
        "listener.10.1.2.3_8080.downstream_cx_total: 9",
        "listener.10.1.2.3_8080.worker_1.downstream_cx_active: 3",
        "listener.0.0.0.0_15006.downstream_cx_active: 1",
        "listener.0.0.0.0_15006.downstream_cx_total: 5",
        "listener.admin.downstream_cx_active: 1",
        "listener.admin.downstream_cx_total: 100",
        "listener.admin.main_thread.downstream_cx_active: 1",
    ) == (Activity(4, 14), [])


@pytest.mark.parametrize("address", ["0.0.0.0", "[__]", "127.0.0.1", "[__1]"])
@pytest.mark.parametrize("port", PORTS)
def test_health_and_metrics_listeners_do_not_count_on_any_address(address: str, port: int) -> None:
    """Case D6."""
    line = f"listener.{address}_{port}.downstream_cx_active: 2"

    assert connections(line) == (Activity(0), [])


def test_internal_listeners_do_not_count() -> None:
    """Case D5."""
    line = "listener.envoy_internal_connect_originate.downstream_cx_active: 5"

    assert connections(line) == (Activity(0), [])


def test_an_empty_answer_is_told_from_nothing_going_on() -> None:
    assert connections("") == (None, [])
    assert requests("") is None


@pytest.mark.parametrize("line", ["listener.x_1.downstream_cx_active", "listener.x_1.cx: many"])
def test_a_line_that_is_no_statistic_is_reported_and_skipped(line: str) -> None:
    good = "listener.x_1.downstream_cx_active: 1"

    assert connections(line, good) == (Activity(1), [line])


def test_idle_connections_are_no_requests() -> None:
    """Case D7: cx_active=3, rq_active=0."""
    assert requests(
        "http.inbound_0.0.0.0_8080;.downstream_cx_active: 3",
        "http.inbound_0.0.0.0_8080;.downstream_rq_active: 0",
        "http.inbound_0.0.0.0_8080;.downstream_rq_total: 40",
        "listener.0.0.0.0_15006.downstream_cx_active: 3",
        "listener.0.0.0.0_15006.downstream_cx_total: 8",
    ) == Activity(0, 48)


def test_a_connection_without_http_is_a_request_and_so_is_an_upgraded_one() -> None:
    found = requests(
        "http.inbound_[::]_8080;.downstream_cx_active: 2",
        "http.inbound_[::]_8080;.downstream_rq_active: 1",
        "listener.[__]_15006.downstream_cx_active: 3",
    )

    assert found == Activity(2)


@pytest.mark.parametrize("own", ["admin", "agent", "stats", "secure_stats"])
def test_the_meshs_own_requests_do_not_count(own: str) -> None:
    assert requests(
        f"http.{own}.downstream_cx_active: 1",
        f"http.{own}.downstream_rq_active: 1",
        f"http.{own}.downstream_rq_total: 1",
        "listener.0.0.0.0_15006.downstream_cx_active: 1",
    ) == Activity(1)


def test_http_that_no_listener_counts_takes_nothing_away() -> None:
    assert requests("http.inner;.downstream_cx_active: 3") == Activity(0)


def test_a_tunnel_of_the_mesh_counts_by_what_comes_through_it() -> None:
    """One connection with two tunnels: idle HTTP through one, something else through the other."""
    found = requests(
        "listener.0.0.0.0_15008.downstream_cx_active: 1",
        "http.connect_terminate.downstream_cx_active: 1",
        "http.connect_terminate.downstream_rq_active: 2",
        "http.connect_terminate.downstream_rq_total: 5",
        "listener.envoy_internal_main_internal.downstream_cx_active: 2",
        "listener.envoy_internal_main_internal.worker_0.downstream_cx_active: 2",
        "http.inbound_0.0.0.0_8080;.downstream_cx_active: 1",
        "http.inbound_0.0.0.0_8080;.downstream_rq_active: 0",
        "listener.envoy_internal_connect_originate.downstream_cx_active: 9",
    )

    assert found == Activity(1, 5)


def looks(*activities: tuple[float, int, int]) -> list[bool]:
    """Return after each look, (seconds, active, begun), whether the drain is over."""
    watch, verdicts = Watch(), []
    for now, active, begun in activities:
        watch, is_over = see(watch, Activity(active, begun), now)
        verdicts.append(is_over)
    return verdicts


def test_what_was_open_for_long_ends_the_drain_at_once() -> None:
    assert looks((10, 1, 5), (11, 1, 5), (11.05, 0, 5)) == [False, False, True]


def test_a_lull_between_requests_is_no_end() -> None:
    assert looks((10, 0, 5), (10.5, 0, 6), (11, 0, 7), (11.9, 0, 7), (12, 0, 7)) == [
        *(False, False, False, False),
        True,
    ]


def test_where_nothing_ever_began_nothing_is_waited_for() -> None:
    assert looks((10, 0, 0)) == [True]


def test_what_goes_on_is_waited_for() -> None:
    assert looks((10, 1, 0), (100, 2, 0)) == [False, False]


def test_looks_take_a_sixth_of_the_time() -> None:
    assert [pause_seconds(took) for took in (0, 0.01, 2)] == [0.025, pytest.approx(0.05), 1]


def test_a_sidecar_keeps_its_outbound_listeners() -> None:
    """Cases D13 and D14."""
    assert drain_target(is_sidecar=True) == "/drain_listeners?inboundonly&graceful&skip_exit"
    assert drain_target(is_sidecar=False) == "/drain_listeners?graceful&skip_exit"
