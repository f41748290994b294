"""Command lines of the small commands: their flags, and what they mean.

Source: bootstrap.md sections 1.1, 1.3, 1.5 and 1.6.
"""

from __future__ import annotations

from agent.request.message import MessageError, parse_url
from agent.request.settings import CommandError, LogSettings, RequestSettings, WaitSettings
from agent.scopes import parse_log
from iptables.flags import GLOBAL_FLAGS, Flag, UsageError, parse_flags, render_help
from iptables.logline import level_of

TYPE_CHECKING = False  # stands for that of `typing`, which is not worth its import here
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from iptables.flags import Parsed

DEFAULTS: Final = WaitSettings()
QUIT_URL: Final = "http://localhost:15020/quitquitquit"
#: What stands before a command of the user's own.
END_OF_FLAGS: Final = "--"
WAIT_FLAGS: Final = (
    Flag("timeoutSeconds", "int", int(DEFAULTS.timeout_seconds), "seconds until it gives up"),
    Flag(
        "requestTimeoutMillis",
        "int",
        int(DEFAULTS.request_timeout_seconds * 1000),
        "milliseconds that one request may take",
    ),
    Flag(
        "periodMillis",
        "int",
        int(DEFAULTS.period_seconds * 1000),
        "milliseconds between two requests",
    ),
    Flag("url", "string", DEFAULTS.url, "where a 200 means ready"),
    Flag("timeout", "duration", 0.0, "the same as timeoutSeconds, such as 90s; 0s for that one"),
    Flag(
        "timeout-fatal",
        "bool",
        default=True,
        help="do not run COMMAND, and exit with 69, if Envoy is not ready in time",
    ),
    Flag("no-quit", "bool", default=False, help="leave the sidecar running when COMMAND has ended"),
    Flag("quit-url", "string", QUIT_URL, "asked by POST when COMMAND has ended"),
    *GLOBAL_FLAGS,
)
ADMIN_PORT: Final = 15000
#: Envoy's admin port, the reference's former debug port, the status port, the health port.
DEBUG_PORTS: Final = (ADMIN_PORT, 15004, 15020, 15021)
REQUEST_FLAGS: Final = (
    Flag("debug-port", "int", ADMIN_PORT, "local port that is asked"),
    *GLOBAL_FLAGS,
)


def wait_help() -> str:
    """Return the help text of `wait`."""
    summary = (
        "Wait until Envoy is ready, then exit with 0, or with 255 if it is not in time. With a "
        "COMMAND, run it then, pass signals on to it, end the sidecar when it has ended, and exit "
        "with its code, or 126 or 127 if it cannot be run: for Jobs. A variable "
        "AGENT_WAIT_DISABLED that is not empty runs COMMAND at once, and nothing else."
    )
    return render_help("agent wait [flags] [-- COMMAND [ARGUMENT...]]", summary, WAIT_FLAGS)


def request_help() -> str:
    """Return the help text of `request`."""
    summary = (
        "Make one HTTP request to Envoy or the agent, and print the body of the response. The exit "
        "code is 255 if there is none, or one of 400 or above that is not 404."
    )
    return render_help("agent request METHOD PATH [BODY] [flags]", summary, REQUEST_FLAGS)


def parse_wait(argv: Sequence[str]) -> WaitSettings | None:
    """Return what to wait for, or None when help was asked for.

    Raises:
        CommandError: the flags cannot be understood.
    """
    words = list(argv)
    end = words.index(END_OF_FLAGS) if END_OF_FLAGS in words else len(words)
    flags = _parse(WAIT_FLAGS, words[:end])
    if flags.help:
        return None
    no_quit = flags.is_on("no-quit")
    return WaitSettings(
        url=_url(flags, "url"),
        timeout_seconds=flags.seconds("timeout") or flags.number("timeoutSeconds"),
        request_timeout_seconds=flags.number("requestTimeoutMillis") / 1000,
        period_seconds=flags.number("periodMillis") / 1000,
        log=_log_settings(flags),
        command=tuple(words[end + 1 :]),
        timeout_fatal=flags.is_on("timeout-fatal"),
        quit_url=_url(flags, "quit-url") if flags.text("quit-url") and not no_quit else "",
    )


def _url(flags: Parsed, name: str) -> str:
    """Return a URL that can be asked: no waiting makes one of another."""
    text = flags.text(name)
    try:
        parse_url(text)
    except MessageError as error:
        raise CommandError(f"--{name}: {error}") from error
    return text


def parse_request(argv: Sequence[str]) -> RequestSettings | None:
    """Return which request to make, or None when help was asked for.

    Raises:
        CommandError: the flags cannot be understood, or method or path is missing.
    """
    flags = _parse(REQUEST_FLAGS, argv)
    if flags.help:
        return None
    words = flags.positionals
    if len(words) < 2:  # noqa: PLR2004 - method and path
        raise CommandError(
            f"requires at least 2 arg(s), only received {len(words)}: METHOD PATH [BODY]"
        )
    log = _log_settings(flags)
    # Whoever calls `request` parses its output: lines for stdout go to stderr (defect 43).
    targets = tuple("stderr" if target == "stdout" else target for target in log.targets)
    return RequestSettings(
        method=words[0],
        path=words[1],
        body=b"".join(word.encode("utf-8", "surrogateescape") for word in words[2:3]),
        debug_port=flags.number("debug-port"),
        log=LogSettings(log.threshold, targets, as_json=log.as_json),
    )


def request_url(settings: RequestSettings, configured_ports: Sequence[int]) -> str:
    """Return the URL to ask.

    Args:
        settings: the command line.
        configured_ports: those that the pod's own configuration gives Envoy's admin port and the
            status server; they may be asked besides the usual ones (defect 42).

    Raises:
        CommandError: the port is none of those that a pod's agent or Envoy uses.
    """
    allowed = tuple(dict.fromkeys((*DEBUG_PORTS, *configured_ports)))
    if settings.debug_port not in allowed:
        listed = " ".join(map(str, allowed))
        raise CommandError(f"debug port {settings.debug_port} is not in allowed list [{listed}]")
    return f"http://localhost:{settings.debug_port}/{settings.path.removeprefix('/')}"


def _parse(flags: Sequence[Flag], argv: Sequence[str]) -> Parsed:
    try:
        return parse_flags(flags, argv)
    except UsageError as error:
        raise CommandError(str(error)) from error


def _log_settings(flags: Parsed) -> LogSettings:
    errors: list[str] = []
    log = parse_log(flags, errors)
    if errors:
        raise CommandError("; ".join(errors))
    return LogSettings(level_of(log.levels, "default"), log.targets, as_json=log.as_json)
