"""Picks the command before anything of ours is imported: the small ones must start like tools.

Source: bootstrap.md sections 1.1 and 1.2.
"""

import os
import sys

TYPE_CHECKING = False  # stands for that of `typing`, which costs half of what `wait` does
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Sequence
else:
    import _signal  # is there already; `signal` builds enumerations

#: Name -> module, function called with (words, environment), words put first, line of help.
COMMANDS = {
    "proxy": ("agent.cli", "proxy", (), "run the agent and its Envoy"),
    "bootstrap": ("agent.preview.cli", "bootstrap", (), "print what Envoy would start from"),
    "wait": ("agent.request.cli", "wait", (), "block until Envoy is ready"),
    "request": ("agent.request.cli", "request", (), "make one HTTP request to a local port"),
    "cert": ("agent.identity.cli", "cert", (), "show the certificates that are served"),
    "istio-iptables": ("iptables.cli", "main", (), "set up traffic capture"),
    "istio-clean-iptables": (
        "iptables.cli",
        "main",
        ("--cleanup-only",),
        "take it away: istio-iptables --cleanup-only",
    ),
    "dns": ("agent.dns.cli", "main", (), "look a name up as the pod does, and say why so"),
    "xds": ("agent.query.cli", "main", (), "show what Envoy is given, and what it makes of it"),
    "inject": ("agent.inject.cli", "inject", (), "write manifests with the agent in every pod"),
    "injector": ("agent.inject.webhook.cli", "injector", (), "be the webhook that does so"),
    "demo": ("agent.demo.cli", "main", (), "show a captured pod in throw-away namespaces"),
    "version": ("agent.cli", "version", (), "print build information"),
    "completion": ("agent.cli", "completion", (), "print what has a shell complete all of this"),
    "help": ("agent.cli", "help_command", (), "print help on a command"),
}
USAGE_ERROR = 255
LAST_STREAM = 2
ENDINGS = (_signal.SIGINT, _signal.SIGTERM)
SIGNALLED = 128  # what a shell adds to a signal's number
#: These leave in good order when they are interrupted, and take care of it themselves.
ORDERLY = ("istio-iptables", "istio-clean-iptables", "xds", "demo")


def main(argv: "Sequence[str]") -> int:
    """Run the command that the words name; return the exit code."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_missing()
    for number in ENDINGS:
        _signal.signal(number, _end)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, ENDINGS)  # the image has them wait for this
    name, rest = (argv[1], list(argv[2:])) if len(argv) > 1 else ("help", [])
    if name not in COMMANDS:
        name, rest = _find(list(argv[1:]))
    if name not in COMMANDS:
        program = argv[0].rpartition("/")[2]
        sys.stderr.write(
            f"Error: unknown command {name!r} for {program!r}\nRun '{program} --help' for usage.\n"
        )
        return USAGE_ERROR
    module, function, first_words, _ = COMMANDS[name]
    run = getattr(__import__(module, fromlist=[function]), function)
    if name in ORDERLY:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
    try:
        code: int = run([*first_words, *rest], os.environ)
    except KeyboardInterrupt:
        code = SIGNALLED + _signal.SIGINT
    except OSError as error:
        code = _without_output(error)
    return code


def _without_output(error: OSError) -> int:
    from iptables.log import without_output  # noqa: PLC0415 - only then

    return without_output(error)


def _open_missing() -> None:
    """Have all three standard streams: else what is opened first stands in for a missing one."""
    last = os.open(os.devnull, os.O_RDWR)
    while last <= LAST_STREAM:
        os.set_inheritable(last, True)  # noqa: FBT003 - its only argument
        last = os.open(os.devnull, os.O_RDWR)
    os.close(last)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for good
    sys.stdout = sys.stdout or open(  # noqa: SIM115 - as above
        1, "w", encoding="utf-8", closefd=False
    )
    sys.stderr = sys.stderr or open(  # noqa: SIM115 - as above
        2, "w", encoding="utf-8", closefd=False
    )


def _end(number: int, frame: object) -> None:
    """End without a word, wherever we are: nothing has been begun that would have to be undone.

    Python would show where it was, and as pid 1 of a container a process without a handler is not
    even told. An agent that is told to end has done what it was asked for (process.py).
    """
    del frame
    os._exit(0 if sys.argv[1:2] == ["proxy"] else SIGNALLED + number)


def _find(words: list[str]) -> tuple[str, list[str]]:
    """Return the command and the other words; flags may stand before it.

    Without a command it is `help`: the root command accepts any flag and prints its help.
    """
    from iptables.flags import GLOBAL_FLAGS  # noqa: PLC0415 - only for flags before the command

    with_value = {f"--{flag.name}" for flag in GLOBAL_FLAGS if flag.kind != "bool"}
    index = 0
    while index < len(words):
        word = words[index]
        if not word.startswith("-"):
            return word, words[:index] + words[index + 1 :]
        index += 2 if word in with_value else 1
    return "help", []


def leave(code: int) -> None:
    """End the process at once: taking the interpreter apart takes 4 ms and frees nothing."""
    try:
        sys.stdout.flush()
    except OSError as error:
        code = code or _without_output(error)
    try:  # noqa: SIM105 - contextlib is not there yet
        sys.stderr.flush()
    except OSError:  # nobody to tell
        pass
    os._exit(code)


if __name__ == "__main__":
    leave(main(sys.argv))
