"""Asks a control plane once, on a connection of its own; and the agent that runs in this pod."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

from agent.errors import AgentError
from agent.http.client import fetch, stream
from agent.http.message import HttpError
from agent.protobuf.wire import WireError
from agent.xds.client import ControlPlane, Upstream
from agent.xds.discovery import Kind, Resource, Response, read_resources, read_response
from agent.xds.server import STATUS

DOCUMENT: Final = "/debug/syncz"
WATCH: Final = "/debug/syncz/watch"
SECONDS: Final = 10.0
LIMIT_BYTES: Final = 64 << 20
OK: Final = 200


class Answer(NamedTuple):
    """What a control plane has of one type."""

    head: Response
    resources: tuple[Resource, ...]
    size: int  #: in bytes


async def ask(
    control_plane: ControlPlane, kind: Kind, type_url: str, request: bytes, seconds: float
) -> Answer:
    """Return the first response of a type.

    Raises:
        AgentError: there is none, and why.
    """
    try:
        async with asyncio.timeout(seconds):
            upstream = await control_plane.open(kind)
            try:
                await upstream.write(request)
                found = await _first(upstream, kind, type_url)
            finally:
                await upstream.close()
    except TimeoutError:
        found = f"no answer for {type_url} within {seconds:g} s"
    except WireError as error:
        found = f"its answer cannot be read: {error}"
    except (OSError, ValueError) as error:  # there is not even a channel
        found = str(error)
    if isinstance(found, Answer):
        return found
    raise AgentError(f"control plane {control_plane.address}: {found}")


async def _first(upstream: Upstream, kind: Kind, type_url: str) -> Answer | str:
    """Return the first response of a type, or how the stream ended."""
    while (raw := await upstream.read()) is not None:
        head = read_response(raw)
        if head.type_url == type_url:
            return Answer(head, read_resources(raw, kind)[1], len(raw))
    code, details = await upstream.status()
    return f"{STATUS[code].name}: {' '.join(details.split())}"


async def running(port: int, *, seconds: float = SECONDS) -> Any:  # noqa: ANN401 - JSON
    """Return what the agent of this pod says of Envoy's stream.

    Raises:
        AgentError: it says nothing.
    """
    try:
        response = await fetch(
            "GET",
            "localhost",
            port,
            DOCUMENT,
            timeout_seconds=seconds,
            limit_bytes=LIMIT_BYTES,
        )
    except HttpError as error:
        raise _no_agent(port, error) from error
    if response.status != OK:
        raise AgentError(f"localhost:{port}{DOCUMENT} answers {response.status}, expected 200")
    return _checked(f"localhost:{port}{DOCUMENT}", response.body, "connection")


async def watch(port: int) -> AsyncIterator[Any]:
    """Yield what the agent of this pod tells of each push, as it comes.

    Raises:
        AgentError: nothing more will come, and why.
    """
    try:
        async with stream("GET", "localhost", port, WATCH, timeout_seconds=None) as incoming:
            if incoming.status != OK:
                raise AgentError(f"localhost:{port}{WATCH} answers {incoming.status}, expected 200")
            rest, kinds = b"", ("connection", "end")
            async for piece in incoming:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield _checked(f"localhost:{port}{WATCH}", line, *kinds)
                    kinds = ("result", "end")
    except HttpError as error:
        raise _no_agent(port, error) from error


def _checked(where: str, text: bytes, *kinds: str) -> Any:  # noqa: ANN401 - JSON
    """Return what the agent says, which has one of these keys; AgentError if it is no agent."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise AgentError(f"{where}: is not JSON: {error}") from error
    if not isinstance(found, dict) or found.keys().isdisjoint(kinds):
        raise AgentError(f"{where}: is not what an agent says; expected {' or '.join(kinds)}")
    return found


def _no_agent(port: int, error: HttpError) -> AgentError:
    return AgentError(f"no answer from the agent at localhost:{port}: {error}; is it running?")
