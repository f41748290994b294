"""A person who looks at the page through a forwarded port, and is told of no error meanwhile."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from agent.demo.process import Namespace
from tests.browser.devtools import Tab, new_tab
from tests.browser.forward import forwarding

STATUS_PORT: Final = 15020
#: What a browser says of a request that nobody has answered.
UNANSWERED: Final = "Failed to load resource: net::ERR_"


class Look:
    """The page, and the port that leads to it."""

    def __init__(self, tab: Tab, port: int) -> None:
        self.tab = tab
        self.port = port

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def reads(self, selector: str, *words: str) -> str:
        """Return what is to be read in an element once all of these words are among it."""
        text = ""
        for each in words:
            text = await self.tab.until(selector, each)
        return text

    async def again(self) -> None:
        """Have the page ask now, as it does when it is looked at again."""
        await self.tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    def check(self, *, is_cut_off: bool = False) -> None:
        """See that nothing went wrong, and that nobody else was asked for anything."""
        problems = [text for text in self.tab.problems if not text.startswith(UNANSWERED)]
        assert problems == []
        assert is_cut_off or self.tab.problems == []
        assert {url for url in self.tab.urls if not url.startswith(self.address)} == set()


@contextlib.asynccontextmanager
async def looking_at(chromium: str, port: int) -> AsyncIterator[Look]:
    """Yield a look at the page on a port of this machine, once it shows something."""
    async with new_tab(chromium) as tab:
        look = Look(tab, port)
        await tab.go(look.address)
        await look.reads("#link", "live")
        yield look


@contextlib.asynccontextmanager
async def looking_into(chromium: str, inside: Namespace) -> AsyncIterator[Look]:
    """Yield a look at the page of a pod; nothing may go wrong meanwhile."""
    async with forwarding(inside, STATUS_PORT) as port, looking_at(chromium, port) as look:
        yield look
        look.check()
