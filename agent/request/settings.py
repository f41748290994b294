"""What the small commands were asked to do.

`WaitSettings()` is `agent wait` without arguments, the usual lifecycle hook: it needs no parser,
and arguments.py is imported only for a command line that has something to parse. For the same
reason these are plain classes: `typing`, home of NamedTuple, costs as much as all the rest.

Source: bootstrap.md sections 1.3, 1.5 and 1.6.
"""


class CommandError(Exception):
    """The command cannot do what it was asked for: one line for the user. Exit code 255."""


class LogSettings:
    """Which lines are written, where, and how."""

    def __init__(
        self,
        threshold: str = "info",
        targets: tuple[str, ...] = ("stdout",),
        *,
        as_json: bool = False,
    ) -> None:
        #: Level from which lines of the default scope are written. --log_output_level.
        self.threshold = threshold
        #: Files, or `stdout` and `stderr`. --log_target.
        self.targets = targets
        #: --log_as_json.
        self.as_json = as_json


class WaitSettings:
    """What `wait` polls, and for how long."""

    def __init__(
        self,
        url: str = "http://localhost:15021/healthz/ready",
        timeout_seconds: float = 60,
        request_timeout_seconds: float = 0.5,
        period_seconds: float = 0.5,
        log: LogSettings | None = None,
        *,
        command: tuple[str, ...] = (),
        timeout_fatal: bool = True,
        quit_url: str = "",
    ) -> None:
        #: Ready is a 200 from here. --url.
        self.url = url
        #: When to give up. --timeoutSeconds.
        self.timeout_seconds = timeout_seconds
        #: Limit of one request. --requestTimeoutMillis.
        self.request_timeout_seconds = request_timeout_seconds
        #: Pause between two requests. --periodMillis.
        self.period_seconds = period_seconds
        self.log = log or LogSettings()
        #: What is run once Envoy is ready: the words after `--`.
        self.command = command
        #: Whether the command is left out where Envoy is not ready in time. --timeout-fatal.
        self.timeout_fatal = timeout_fatal
        #: Asked to end the sidecar when the command has ended; empty for nobody. --quit-url.
        self.quit_url = quit_url


class RequestSettings:
    """The one request that `request` makes."""

    def __init__(
        self, method: str, path: str, body: bytes, debug_port: int, log: LogSettings
    ) -> None:
        self.method = method
        #: As typed; one leading slash is dropped, a query string may follow.
        self.path = path
        self.body = body
        #: --debug-port.
        self.debug_port = debug_port
        self.log = log
