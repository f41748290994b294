"""One Chromium for all tests, each of which has a tab of its own."""

from collections.abc import Iterator

import pytest

from tests.browser.devtools import running_chromium


@pytest.fixture(scope="session")
def chromium() -> Iterator[str]:
    """Return where the DevTools of a Chromium are."""
    with running_chromium() as address:
        yield address
