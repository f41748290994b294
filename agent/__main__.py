"""Picks the command before anything of ours is imported: the small ones must start like tools.

Source: bootstrap.md sections 1.1 and 1.2.
"""

import os
import sys

TYPE_CHECKING = False  # stands for that of `typing`, which costs half of what `wait` does
if TYPE_CHECKING:
    from collections.abc import Sequence

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
        "take traffic capture away; the same as istio-iptables --cleanup-only",
    ),
    "dns": ("agent.dns.cli", "main", (), "look a name up as the pod does, and say why so"),
    "xds": ("agent.query.cli", "main", (), "show what Envoy is given, and what it makes of it"),
    "inject": ("agent.inject.cli", "inject", (), "write manifests with the agent in every pod"),
    "demo": ("agent.demo.cli", "main", (), "show a captured pod in throw-away namespaces"),
    "version": ("agent.cli", "version", (), "print build information"),
    "help": ("agent.cli", "help_command", (), "print help on a command"),
}
USAGE_ERROR = 255


def main(argv: "Sequence[str]") -> int:
    """Run the command that the words name; return the exit code."""
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
    code: int = run([*first_words, *rest], os.environ)
    return code


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
        sys.stderr.flush()
    except OSError:  # whoever read has gone
        code = code or 1
    os._exit(code)


if __name__ == "__main__":
    leave(main(sys.argv))
