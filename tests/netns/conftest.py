"""Shared by the tests in namespaces."""

from collections.abc import Iterator

import pytest

from tests.netns.namespaces import Namespace, namespace


@pytest.fixture
def inside() -> Iterator[Namespace]:
    """Return a namespace with an address of each family."""
    with namespace("240.240.240.240/32", "2001:db8::7/128") as made:
        yield made
