"""The commands `proxy`, `version`, `completion`, `help`: flags in, exit code out, one-line errors.

Imports stand in the functions: what a command does not need must not slow its start.
"""

# ruff: noqa: PLC0415 - see above

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from iptables.flags import GLOBAL_FLAGS, Flag, Parsed, UsageError, parse_flags, render_help

FAILED = 255  # bootstrap.md 1.1: any command returned an error
VERSION_FLAGS = (
    Flag("short", "bool", default=False, help="print the version alone", short="s"),
    Flag("output", "string", "", "format of the output: yaml or json", short="o"),
    *GLOBAL_FLAGS,
)
COMPLETION_FLAGS = (
    Flag("no-descriptions", "bool", default=False, help="accepted, without effect: there are none"),
    *GLOBAL_FLAGS,
)
COMPLETION_HELP = (
    "agent completion bash|zsh [flags]",
    "Print what has a shell complete commands and flags; use it: source <(agent completion bash)",
)


def proxy(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the agent until Envoy has ended; return the exit code."""
    import gc

    gc.disable()  # what is imported stays: collecting it is a tenth of the start (run.py undoes it)
    from agent.proxy_flags import HELP, PROXY_FLAGS

    try:
        flags = parse_flags(PROXY_FLAGS, argv, unknown_ok=True)
    except UsageError as error:
        return fail(error)
    if flags.help:
        return _print(render_help(*HELP, PROXY_FLAGS))

    from agent.identity.process import begin

    begun = begin(environ)  # first: it works while the rest is imported
    from agent.errors import AgentError
    from agent.process import started
    from bootstrap.errors import BootstrapError

    try:
        with started(flags, environ, begun) as start:
            from agent.run import run  # asyncio and gRPC, while Envoy starts

            code = run(start)
        _leave(code)
    except (BootstrapError, AgentError) as error:
        return fail(error)


def _leave(code: int) -> NoReturn:
    """End the process at once: tearing gRPC and asyncio down takes 10 ms and frees nothing."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError):  # closed, or full: no reason to end otherwise
            stream.flush()
    os._exit(code)


def version(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print build information."""
    del environ
    from agent.version import version_text

    try:
        flags = parse_flags(VERSION_FLAGS, argv)
        if flags.help:
            usage = "agent version [flags]"
            return _print(render_help(usage, "Print build information.", VERSION_FLAGS))
        return _print(version_text(flags.text("output"), short=flags.is_on("short")))
    except (UsageError, ValueError) as error:
        return fail(error)


def completion(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print a script for bash or zsh."""
    del environ
    from agent.__main__ import COMMANDS
    from agent.completion import script

    try:
        flags = parse_flags(COMPLETION_FLAGS, argv)
        if flags.help:
            return _print(render_help(*COMPLETION_HELP, COMPLETION_FLAGS))
        return _print(script(" ".join(flags.positionals), COMMANDS))
    except (UsageError, ValueError) as error:
        return fail(error)


def help_command(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print the list of commands, or one command's own help."""
    from agent.__main__ import COMMANDS, main

    named = _first_command(argv)
    if named:
        return main(["agent", named, "--help"])
    del environ
    width = max(len(name) for name in COMMANDS)
    lines = [f"  {name:{width}}  {entry[-1]}" for name, entry in COMMANDS.items()]
    return _print(
        "The agent of a service mesh's pod: captures its traffic, runs its Envoy.\n\n"
        "Usage:\n  agent COMMAND [flags]\n\nCommands:\n" + "\n".join(lines) + "\n\n"
        "Use 'agent COMMAND --help' for the flags of a command.\n"
    )


def _first_command(argv: Sequence[str]) -> str:
    parsed: Parsed = parse_flags((), argv, unknown_ok=True)
    return parsed.positionals[0] if parsed.positionals else ""


def _print(text: str) -> int:
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    return 0


def fail(error: Exception | str) -> int:
    """Write a line for each problem to stderr; return the exit code of a command that failed."""
    for problem in getattr(error, "problems", [str(error)]):
        sys.stderr.write(f"Error: {problem}\n")
    return FAILED
