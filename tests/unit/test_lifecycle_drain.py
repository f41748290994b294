import pytest

from agent.lifecycle.drain import DrainSettings, active_connections, drain_target, parse_drain
from agent.reader import Reader

PORTS = (15021, 15090)


def count(*lines: str) -> tuple[int, list[str]]:
    odd: list[str] = []
    return active_connections("\n".join(lines), PORTS, odd.append), odd


def test_only_the_listeners_of_the_application_are_counted() -> None:
    assert count(
        "http.inbound_0.0.0.0_8080;.downstream_cx_active: 7",
        "listener.10.1.2.3_8080.downstream_cx_active: 3",
        "listener.10.1.2.3_8080.worker_1.downstream_cx_active: 3",
        "listener.0.0.0.0_15006.downstream_cx_active: 1",
        "listener.admin.downstream_cx_active: 1",
        "listener.admin.main_thread.downstream_cx_active: 1",
    ) == (4, [])


@pytest.mark.parametrize("address", ["0.0.0.0", "[__]", "127.0.0.1", "[__1]"])
@pytest.mark.parametrize("port", PORTS)
def test_health_and_metrics_listeners_do_not_count_on_any_address(address: str, port: int) -> None:
    assert count(f"listener.{address}_{port}.downstream_cx_active: 2") == (0, [])


def test_internal_listeners_do_not_count() -> None:
    assert count("listener.envoy_internal_connect_originate.downstream_cx_active: 5") == (0, [])


def test_an_empty_answer_is_told_from_zero() -> None:
    assert count("") == (-1, [])


@pytest.mark.parametrize(
    "line", ["listener.x_1.downstream_cx_active", "listener.a:b.cx: 1", "listener.x_1.cx: many"]
)
def test_a_line_that_is_no_stat_is_reported_and_skipped(line: str) -> None:
    assert count(line, "listener.x_1.downstream_cx_active: 1") == (1, [line])


def test_a_sidecar_keeps_its_outbound_listeners() -> None:
    """Cases D13, D14."""
    assert drain_target(is_sidecar=True) == "/drain_listeners?inboundonly&graceful&skip_exit"
    assert drain_target(is_sidecar=False) == "/drain_listeners?graceful&skip_exit"


def test_settings_come_from_the_environment() -> None:
    read = Reader({"MINIMUM_DRAIN_DURATION": "30s", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true"})

    settings = parse_drain(read, termination_seconds=7, ignored_ports=PORTS)

    assert settings == DrainSettings(
        termination_seconds=7, minimum_seconds=30, exit_on_idle=True, ignored_ports=PORTS
    )


def test_an_unusable_duration_is_a_warning_and_the_default() -> None:
    read = Reader({"MINIMUM_DRAIN_DURATION": "5"})

    settings = parse_drain(read, termination_seconds=5, ignored_ports=PORTS)

    assert settings.minimum_seconds == 5
    assert read.warnings == [
        "MINIMUM_DRAIN_DURATION='5': expected a duration such as '5s' or '300ms'; using the default"
    ]
