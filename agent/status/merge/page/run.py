"""The parts of a page one after the other, each unread where it is in the page's format.

Where the application answers OpenMetrics, so does the agent, and the parts of Envoy and the agent
are made that (modern.py). Where its pages differ, or it answers a version that nobody knows, the
page is in the text format, and those in OpenMetrics are made that.

Source: status-lifecycle.md sections 4.2, 4.5 and 14 (D17, D19); cases.md M3, M5.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing

from agent.http.client import Incoming
from agent.status.exposition import Format, Lines, is_openmetrics
from agent.status.merge.admission import Budget
from agent.status.merge.client import Page, Sources, body_of, content_type, take_in
from agent.status.merge.log import Account


async def sequence(
    stack: AsyncExitStack, sources: Sources, account: Account, budget: Budget
) -> AsyncGenerator[bytes, None]:
    """Yield agent, Envoy and application, without terminator.

    Args:
        stack: what is held is given back when it is left.
        sources: what has answered.
        account: told of what breaks off.
        budget: of what is held.
    """
    kind = sources.format
    convert = _conversion(kind)
    yield convert(account.own())
    if sources.envoy:
        async with aclosing(_lines(sources.envoy, account, "envoy")) as pieces:
            async for piece in pieces:
                yield convert(piece)
    for each in sources.application:
        async with aclosing(_application(stack, each, kind, account, budget)) as pieces:
            async for piece in pieces:
                yield piece


def _conversion(kind: Format) -> Callable[[bytes], bytes]:
    """Return what makes whole lines of the text format into the page's."""
    if not kind.is_openmetrics:
        return bytes
    from agent.status.merge.modern import Modern  # noqa: PLC0415 - by the first such page

    return Modern().feed


async def _lines(incoming: Incoming, account: Account, source: str) -> AsyncGenerator[bytes, None]:
    """Yield whole lines of a page as it comes."""
    lines = Lines()
    rest = lines.cut
    with account.reading(source):
        async with aclosing(body_of(incoming)) as pieces:
            async for piece in pieces:
                if text := lines.feed(piece):
                    yield text
        rest = lines.end
    yield rest()


def _application(
    stack: AsyncExitStack, page: Incoming | Page, kind: Format, account: Account, budget: Budget
) -> AsyncGenerator[bytes, None]:
    """Return what yields a page of the application in the format of the whole."""
    if isinstance(page, Page):
        return _collected(page, kind, account)
    if is_openmetrics(content_type(page)) is kind.is_openmetrics:
        return _lines(page, account, "application")
    return _taken_in(stack, page, kind, account, budget)


async def _taken_in(
    stack: AsyncExitStack, incoming: Incoming, kind: Format, account: Account, budget: Budget
) -> AsyncGenerator[bytes, None]:
    """Yield a page that must be read as a whole to be written in another format."""
    page: Page | None = None
    with account.reading("application"):
        page = await take_in(stack, incoming, budget)
    if page:
        async with aclosing(_collected(page, kind, account)) as pieces:
            async for piece in pieces:
                yield piece


async def _collected(page: Page, kind: Format, account: Account) -> AsyncGenerator[bytes, None]:
    if page.is_openmetrics is not kind.is_openmetrics:
        from agent.status.merge.strict.run import rewritten  # noqa: PLC0415 - for few pages

        async with aclosing(rewritten(page, kind, account)) as pieces:
            async for piece in pieces:
                yield piece
        return
    lines = Lines()
    for piece in page.slices():
        yield lines.feed(piece)
    yield lines.end()
