"""Shared by all tests: what needs root says so, and nothing may be left behind."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: gRPC tells each end of a connection in lines of its own; it reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs root where there is none; on CI it must run."""
    if os.geteuid() == 0 or os.environ.get("CI"):
        return
    for item in items:
        if item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="needs root and network namespaces"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that rewrites golden files."""
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Return whether golden files are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update-golden"))
