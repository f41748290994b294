import json

from bootstrap.addresses import network
from bootstrap.listeners import listeners
from bootstrap.options import Options

IPV4 = network(["10.0.0.1"], dual_stack=False)
DEFAULT = Options()
BOTH = network(["fd00::1", "10.0.0.1"], dual_stack=True)


def names(options: Options = DEFAULT, *, local_metrics: bool = False) -> list[object]:
    found = listeners(options, IPV4, local_metrics=local_metrics, compress=True)
    return [listener["name"] for listener in found]


def http_filters(*, compress: bool) -> list[str]:
    metrics, _ = listeners(Options(), IPV4, local_metrics=False, compress=compress)
    chains = json.loads(json.dumps(metrics))["filter_chains"]
    return [each["name"] for each in chains[0]["filters"][0]["typed_config"]["http_filters"]]


def test_metrics_and_health_are_always_there() -> None:
    assert names() == ["0.0.0.0_15090", "0.0.0.0_15021"]


def test_secure_metrics_stand_between_metrics_and_health() -> None:
    options = Options(secure_metrics_port=1, secure_merged_metrics_port=2)

    assert names(options) == ["0.0.0.0_15090", "0.0.0.0_1", "0.0.0.0_2", "0.0.0.0_15021"]


def test_metrics_can_stay_inside_the_pod() -> None:
    assert names(local_metrics=True) == ["127.0.0.1_15090", "0.0.0.0_15021"]


def test_in_dual_stack_only_plain_listeners_take_both_families() -> None:
    options = Options(secure_metrics_port=1)

    found = listeners(options, BOTH, local_metrics=False, compress=True)

    assert [listener["name"] for listener in found] == ["::_15090", "::_1", "::_15021"]
    assert [listener.get("additional_addresses") for listener in found] == [
        [
            {
                "address": {
                    "socket_address": {"protocol": "TCP", "address": "0.0.0.0", "port_value": port}
                }
            }
        ]
        if port != 1
        else None
        for port in (15090, 1, 15021)
    ]


def test_local_metrics_in_dual_stack_take_both_loopbacks() -> None:
    metrics, _ = listeners(Options(), BOTH, local_metrics=True, compress=True)

    assert metrics["name"] == "::1_15090"
    assert "'127.0.0.1'" in str(metrics["additional_addresses"])


def test_metrics_are_compressed_unless_switched_off() -> None:
    """Gotcha 17 of bootstrap.md section 8."""
    router = "envoy.filters.http.router"
    compressor = "envoy.filters.http.compressor"

    assert http_filters(compress=False) == [router]
    assert http_filters(compress=True) == [
        *(f"{compressor}.{name}" for name in ("brotli", "zstd", "gzip")),
        router,
    ]


def test_only_the_health_listener_takes_the_proxy_protocol() -> None:
    """Defect 34 of bootstrap.md section 8."""
    options = Options(status_proxy_protocol=True)

    metrics, health = listeners(options, IPV4, local_metrics=False, compress=True)

    assert "listener_filters" not in metrics
    assert "allow_requests_without_proxy_protocol" in str(health["listener_filters"])
