"""A command that runs beside a sidecar: after it is ready, and with it gone afterwards.

Source: the manner is that of linkerd-await and scuttle; status-lifecycle.md section 9.9.
"""

from __future__ import annotations

from agent.request.client import fetch
from agent.request.process import CannotStartError, Interrupted, Job, become
from agent.request.settings import CommandError

TYPE_CHECKING = False  # stands for that of `typing`, which is not worth its import here
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agent.request.log import Log
    from agent.request.settings import WaitSettings

DISABLED = "AGENT_WAIT_DISABLED"
NOT_READY = 69  # EX_UNAVAILABLE, as linkerd-await
QUIT_SECONDS = 5.0


def run_when_ready(
    settings: WaitSettings,
    environ: Mapping[str, str],
    log: Log,
    wait: Callable[[WaitSettings, Log], None],
) -> int:
    """Run the command once Envoy is ready, then end the sidecar; return the exit code.

    It is the command's own, 128 and the signal that ended it, 126 or 127 if it cannot be started,
    as a shell has it, or 69 if Envoy was not ready in time.

    Args:
        settings: what to wait for, and what to run.
        environ: of the command.
        log: where to say what goes on.
        wait: returns when Envoy is ready; raises CommandError when that takes too long.
    """
    try:
        if reason := environ.get(DISABLED):
            log.write("info", f"Not waiting: {DISABLED}={reason}")
            become(settings.command, environ)
        job = Job(settings.command, environ)
        code = _run(settings, job, log, wait)
    except CannotStartError as error:
        log.fail(error)
        code = error.exit_code
    except Interrupted as interrupted:
        code = 128 + interrupted.signal
    if settings.quit_url:
        _quit(settings.quit_url, log)
    return code


def _run(
    settings: WaitSettings, job: Job, log: Log, wait: Callable[[WaitSettings, Log], None]
) -> int:
    try:
        wait(settings, log)
    except CommandError as error:
        if settings.timeout_fatal:
            log.fail(error)
            return NOT_READY
        log.write("warn", f"{error}; going on without it")
    if not settings.quit_url:
        job.become()
    return job.run()


def _quit(url: str, log: Log) -> None:
    try:
        response = fetch("POST", url, timeout_seconds=QUIT_SECONDS)
        found = f"status {response.status}" if response.status != 200 else ""  # noqa: PLR2004 - OK
    except CommandError as error:
        found = str(error)
    if found:
        log.write("warn", f"The sidecar was not told to end: POST {url}: {found}")
