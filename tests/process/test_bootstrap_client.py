from threading import Event

import pytest

from bootstrap.client import resolve_statsd
from bootstrap.config import ProxyConfig, from_document


def statsd(address: str) -> ProxyConfig:
    return from_document({"statsdUdpAddress": address} if address else {})


def test_a_name_becomes_an_ipv4_address_where_there_is_one() -> None:
    config, warnings = resolve_statsd(statsd("localhost:8125"))

    assert config.statsd_udp_address in ("127.0.0.1:8125", "[::1]:8125")
    assert config.document["statsdUdpAddress"] == config.statsd_udp_address
    assert not warnings


def test_an_address_is_not_looked_up() -> None:
    assert resolve_statsd(statsd("[fd00::1]:8125"))[0] == statsd("[fd00::1]:8125")


def test_without_statsd_there_is_nothing_to_do() -> None:
    assert resolve_statsd(statsd("")) == (statsd(""), [])


def test_an_address_without_port_switches_statsd_off() -> None:
    config, warnings = resolve_statsd(statsd("localhost"))

    assert config == statsd("")
    assert warnings == ["statsdUdpAddress='localhost': expected host:port; statsd is off"]


def test_a_name_that_nobody_knows_switches_statsd_off() -> None:
    config, (warning,) = resolve_statsd(statsd("nobody.invalid:8125"))

    assert config == statsd("")
    assert warning.startswith("statsdUdpAddress='nobody.invalid:8125': ")


def test_an_answer_that_does_not_come_switches_statsd_off() -> None:
    done = Event()

    def never(_host: str) -> list[str]:
        done.wait()
        return []

    config, warnings = resolve_statsd(statsd("x:8125"), timeout_seconds=0.01, look_up=never)
    done.set()

    assert config == statsd("")
    assert warnings == ["statsdUdpAddress='x:8125': no answer within 0.01s; statsd is off"]


@pytest.mark.parametrize(
    ("answer", "address"),
    [
        (["fd00::1", "10.0.0.1", "10.0.0.2"], "10.0.0.1:8125"),
        (["fd00::1", "fd00::2"], "[fd00::1]:8125"),
    ],
)
def test_the_first_ipv4_address_is_preferred(answer: list[str], address: str) -> None:
    config, _ = resolve_statsd(statsd("x:8125"), look_up=lambda _host: answer)

    assert config == statsd(address)
