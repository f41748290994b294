"""The commands `wait` and `request`.

Source: bootstrap.md sections 1.1, 1.3, 1.5 and 1.6; status-lifecycle.md section 7.
"""

from __future__ import annotations

import os
import sys
import time

from agent.request.client import ConnectError, ExchangeError, fetch
from agent.request.log import Log
from agent.request.message import failure, lasting, not_ready_reason
from agent.request.settings import CommandError, LogSettings, RequestSettings, WaitSettings

TYPE_CHECKING = False  # stands for that of `typing`, which is not worth its import here
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FAILED = 255  # bootstrap.md 1.1: a command returned an error
REQUEST_TIMEOUT_SECONDS = 60
#: A refused connection costs nobody anything, so what does not listen yet is tried more often.
REFUSED_PERIOD_SECONDS = 0.05
SHORTEST_PERIOD_SECONDS = 0.01
#: Tells why Envoy is not ready, even while Envoy has no listener that could.
STATUS_URL = "http://localhost:15020/healthz/ready"


def wait(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Block until Envoy is ready; return the exit code, 0 or 255, or that of a command.

    Args:
        argv: the words after the command's name.
        environ: the environment, which a command inherits.
    """
    log = Log(LogSettings())
    try:
        settings = _wait_settings(argv)
        if settings is not None:
            log = Log(settings.log)
            if settings.command:
                from agent.request.run import run_when_ready  # noqa: PLC0415 - see above

                return run_when_ready(settings, environ, log, _wait_until_ready)
            _wait_until_ready(settings, log)
    except CommandError as error:
        log.fail(error)
        return FAILED
    return 0


def _wait_settings(argv: Sequence[str]) -> WaitSettings | None:
    """Return what to wait for; None when the help text was wanted, and printed."""
    if not argv:  # as in a postStart hook: the parser would be most of its time
        return WaitSettings()
    from agent.request.arguments import parse_wait, wait_help  # noqa: PLC0415 - see above

    settings = parse_wait(argv)
    if settings is None:
        sys.stdout.write(wait_help())
    return settings


def _wait_until_ready(settings: WaitSettings, log: Log) -> None:
    """Return once the URL answers 200.

    The first look is at once. What is waited for is written when it changes.

    Raises:
        CommandError: it took too long; names the last reason.
    """
    log.write(
        "info",
        f"Waiting for Envoy proxy to be ready (timeout: {settings.timeout_seconds:g} seconds)...",
    )
    period = max(settings.period_seconds, SHORTEST_PERIOD_SECONDS)
    deadline = time.monotonic() + settings.timeout_seconds
    written = ""
    stage, stage_due = "", 0.0
    while True:
        reason, refused = _attempt(settings.url, settings.request_timeout_seconds)
        if not reason:
            log.write("info", "Envoy is ready!")
            return
        now = time.monotonic()
        if refused and now >= stage_due:
            stage, stage_due = _stage(settings), now + period
        text = f"{reason}; the agent says: {stage}" if refused and stage else reason
        log.write("debug" if lasting(text) == written else "info", f"Not ready yet: {text}")
        written = lasting(text)
        if now >= deadline:
            raise CommandError(
                f"timeout waiting for Envoy proxy to become ready. Last error: {text}"
            )
        pause = min(period, REFUSED_PERIOD_SECONDS) if refused else period
        time.sleep(min(pause, deadline - now))


def _attempt(url: str, timeout_seconds: float) -> tuple[str, bool]:
    """Return why it is not ready, empty if it is, and whether nothing listens there."""
    try:
        response = fetch("GET", url, timeout_seconds=timeout_seconds)
    except ConnectError as error:
        return str(error), True
    except ExchangeError as error:
        return str(error), False
    return not_ready_reason(response), False


def _stage(settings: WaitSettings) -> str:
    """Return what the agent itself says it waits for; empty if it cannot be asked."""
    if settings.url == STATUS_URL:
        return ""
    reason, refused = _attempt(STATUS_URL, settings.request_timeout_seconds)
    return "" if refused else reason


def request(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Make one request and print the body of its response; return the exit code, 0 or 255.

    Args:
        argv: the words after the command's name.
        environ: the environment; its PROXY_CONFIG may name further ports.
    """
    log = Log(LogSettings(targets=("stderr",)))
    try:
        settings = _request_settings(argv)
        if settings is not None:
            log = Log(settings.log)
            _print(_answer(settings, environ))
    except CommandError as error:
        log.fail(error)
        return FAILED
    return 0


def _request_settings(argv: Sequence[str]) -> RequestSettings | None:
    """Return what to ask; None when the help text was wanted, and printed."""
    from agent.request.arguments import parse_request, request_help  # noqa: PLC0415 - not for `wait`

    settings = parse_request(argv)
    if settings is None:
        sys.stdout.write(request_help())
    return settings


def _answer(settings: RequestSettings, environ: Mapping[str, str]) -> bytearray:
    """Return what the port answered.

    Raises:
        CommandError: the port may not be asked, did not answer, or answered with an error.
    """
    from agent.request.arguments import DEBUG_PORTS, request_url  # noqa: PLC0415 - not for `wait`

    further_ports: tuple[int, ...] = ()
    if settings.debug_port not in DEBUG_PORTS:
        from agent.request.files import configured_ports  # noqa: PLC0415 - hardly ever needed

        further_ports = configured_ports(environ)
    url = request_url(settings, further_ports)
    response = fetch(settings.method, url, settings.body, timeout_seconds=REQUEST_TIMEOUT_SECONDS)
    if problem := failure(response):
        raise CommandError(problem)
    return response.body


def _print(body: bytearray) -> None:
    """Write the body and a line end to stdout, and nothing else: callers parse it."""
    body += b"\n"
    rest = memoryview(body)
    try:
        while rest:
            rest = rest[os.write(sys.stdout.fileno(), rest) :]
    except BrokenPipeError:
        return  # whoever read has seen enough
    except OSError as error:
        raise CommandError(f"stdout: {(error.strerror or str(error)).lower()}") from error
