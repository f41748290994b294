"""The variables of Wasm modules. Section 12."""

import pytest

from agent.reader import Reader
from agent.wasm.settings import FetchSettings, WasmSettings, parse_wasm


def test_without_any_variable_modules_are_fetched() -> None:
    settings = parse_wasm(Reader({}))

    assert settings == WasmSettings()
    assert settings.enabled
    assert (settings.expiry_seconds, settings.purge_seconds) == (86400, 3600)
    assert settings.fetch.directory == "/var/lib/istio/data"
    assert (settings.fetch.attempts, settings.fetch.attempt_seconds) == (5, 15)
    assert settings.fetch.max_bytes == 268435456


def test_each_variable_is_read() -> None:
    values = {
        "ISTIO_AGENT_ENABLE_WASM_REMOTE_LOAD_CONVERSION": "false",
        "WASM_MODULE_EXPIRY": "1h",
        "WASM_PURGE_INTERVAL": "1ms",
        "AGENT_WASM_KEEP_LAST": "true",
        "AGENT_WASM_DIRECTORY": "/modules/",
        "WASM_INSECURE_REGISTRIES": "localhost:5000, registry,",
        "BLOCKED_CIDRS_IN_WASM_FETCH": "10.0.0.0/8,fd00::1/64,192.0.2.1",
        "WASM_HTTP_REQUEST_TIMEOUT": "2s",
        "WASM_HTTP_REQUEST_MAX_RETRIES": "3",
        "ISTIO_WASM_MAX_BINARY_SIZE_BYTES": "1024",
    }
    read = Reader(values)

    settings = parse_wasm(read)

    assert settings == WasmSettings(
        enabled=False,
        expiry_seconds=3600,
        purge_seconds=0.001,
        keep_last=True,
        fetch=FetchSettings(
            directory="/modules",
            insecure=("localhost:5000", "registry"),
            blocked=("10.0.0.0/8", "fd00::/64", "192.0.2.1/32"),
            attempt_seconds=2,
            attempts=3,
            max_bytes=1024,
        ),
    )
    assert not read.warnings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WASM_MODULE_EXPIRY", "0s"),
        ("WASM_PURGE_INTERVAL", "-1h"),
        ("WASM_HTTP_REQUEST_TIMEOUT", "soon"),
        ("WASM_HTTP_REQUEST_MAX_RETRIES", "0"),
        ("ISTIO_WASM_MAX_BINARY_SIZE_BYTES", "1k"),
        ("AGENT_WASM_DIRECTORY", "modules"),
    ],
)
def test_what_cannot_work_is_the_default(name: str, value: str) -> None:
    read = Reader({name: value})

    assert parse_wasm(read) == WasmSettings()
    assert [warning.partition(":")[0] for warning in read.warnings] == [f"{name}={value!r}"]


def test_a_bad_network_is_passed_over() -> None:
    read = Reader({"BLOCKED_CIDRS_IN_WASM_FETCH": "10.0.0.0/8,nonsense"})

    assert parse_wasm(read).fetch.blocked == ("10.0.0.0/8",)
    assert read.warnings == [
        "BLOCKED_CIDRS_IN_WASM_FETCH: 'nonsense': expected a CIDR, as 10.0.0.0/8; ignored"
    ]
