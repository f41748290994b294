"""The agent's own metrics have the names, types and labels of the reference.

Source: status-lifecycle.md section 8. What it leaves to us is named in the last tests.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from agent.dns.messages import run as dns
from agent.metrics import FAMILIES, PREFIX, Family
from agent.status import process
from agent.wasm import run as wasm

ROOT = Path(__file__).parents[2]
ALL: Final = {**FAMILIES, **process.FAMILIES, **dns.FAMILIES, **wasm.FAMILIES}
COUNTER, GAUGE = ("counter", ()), ("gauge", ())
SPECIFIED: Final[dict[str, tuple[str, tuple[float, ...]]]] = {
    "scrapes_total": COUNTER,
    "scrape_failures_total": COUNTER,
    "startup_duration_seconds": GAUGE,
    "istiod_connection_failures": COUNTER,
    "istiod_connection_terminations": COUNTER,
    "envoy_connection_terminations": COUNTER,
    "xds_proxy_requests": COUNTER,
    "xds_proxy_responses": COUNTER,
    "num_outgoing_requests": COUNTER,
    "num_failed_outgoing_requests": COUNTER,
    "num_outgoing_retries": COUNTER,
    "outgoing_latency": COUNTER,
    "num_file_watcher_failures_total": COUNTER,
    "num_file_secret_failures_total": COUNTER,
    "cert_expiry_seconds": GAUGE,
    "dns_requests_total": COUNTER,
    "dns_upstream_requests_total": COUNTER,
    "dns_upstream_failures_total": COUNTER,
    "dns_upstream_request_duration_seconds": ("histogram", (0.001, 0.005, 0.01, 0.1, 1, 5)),
    "wasm_cache_entries": GAUGE,
    "wasm_cache_lookup_count": COUNTER,
    "wasm_remote_fetch_count": COUNTER,
    "wasm_config_conversion_count": COUNTER,
    "wasm_config_conversion_duration": ("histogram", tuple(float(2**n) for n in range(15))),
    "process_cpu_seconds_total": COUNTER,
    "process_open_fds": GAUGE,
    "process_max_fds": GAUGE,
    "process_virtual_memory_bytes": GAUGE,
    "process_virtual_memory_max_bytes": GAUGE,
    "process_resident_memory_bytes": GAUGE,
    "process_start_time_seconds": GAUGE,
    "process_network_receive_bytes_total": COUNTER,
    "process_network_transmit_bytes_total": COUNTER,
}


@pytest.mark.parametrize("name", SPECIFIED)
def test_a_metric_of_the_reference_is_there_as_it_was(name: str) -> None:
    family = ALL[name]

    assert (family.kind, family.bounds) == SPECIFIED[name]
    assert family.help.endswith(".")


def test_all_have_the_prefix_and_none_is_gos() -> None:
    assert PREFIX == "istio_agent_"
    assert not [name for name in ALL if name.startswith(("go_", PREFIX))]
    assert {"python_info", "python_gc_collections_total"} <= ALL.keys()


def texts(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    yield from (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def test_each_is_recorded_somewhere() -> None:
    """A name in the registry that nothing records would never be seen."""
    declaring = ROOT / "agent" / "metrics.py"
    named = {
        text for path in (ROOT / "agent").rglob("*.py") if path != declaring for text in texts(path)
    }

    assert set(ALL) - named == set()


def test_help_is_one_line() -> None:
    assert not [name for name, family in ALL.items() if "\n" in family.help]
    assert all(isinstance(family, Family) for family in ALL.values())
