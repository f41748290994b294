"""What the log says of environment and settings."""

from iptables import report
from iptables.config import Actions, CaptureConfig, DnsCapture
from iptables.host import Servers
from iptables.lists import Ranges


def test_the_environment_is_shown_as_it_is() -> None:
    lines = report.environment({"INVALID_DROP": "true", "SECRET": "x"}).splitlines()

    assert lines[0] == "Istio iptables environment:"
    assert "INVALID_DROP=true" in lines
    assert "ENVOY_PORT=" in lines
    assert "x" not in "".join(lines)


def test_settings_are_shown_one_to_a_line() -> None:
    config = CaptureConfig(
        dns=DnsCapture(servers=Servers(("10.0.0.1", "10.0.0.2"), ("fd00::1",))), drop_invalid=True
    )
    ranges = Ranges(v4=("10.0.0.0/8",), v6=("fd00::/8",))
    config = config._replace(outbound=config.outbound._replace(ranges=ranges))

    lines = report.settings(config, Actions(forced_variant="nft"), dual_stack=True).splitlines()

    assert lines[0] == "Istio config:"
    assert set(lines) >= {
        "PROXY_PORT=15001",
        "PROXY_UID=1337",
        "OUTBOUND_OWNER_GROUPS_INCLUDE=*",
        "OUTBOUND_IP_RANGES_INCLUDE=10.0.0.0/8,fd00::/8",
        "DUAL_STACK=true",
        "DNS_CAPTURE=true",
        "CAPTURE_ALL_DNS=false",
        "DNS_SERVERS=[10.0.0.1 10.0.0.2],[fd00::1]",
        "DROP_INVALID=true",
        "FORCE_IPTABLES_BINARY=nft",
    }


def test_dns_that_is_left_alone_has_no_servers() -> None:
    config = CaptureConfig()
    config = config._replace(outbound=config.outbound._replace(ranges=Ranges(is_all=True)))

    lines = report.settings(config, Actions(), dual_stack=False).splitlines()

    assert "DNS_CAPTURE=false" in lines
    assert "DNS_SERVERS=[],[]" in lines
    assert "OUTBOUND_IP_RANGES_INCLUDE=*" in lines
    assert "FORCE_IPTABLES_BINARY=" in lines
