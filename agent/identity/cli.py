"""The command `cert`: what is served now, by whom it is signed, and how long it lasts."""

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent.cli import fail
from agent.errors import AgentError
from agent.http.client import fetch
from agent.http.message import HttpError
from agent.identity.report import is_document, render
from iptables.flags import GLOBAL_FLAGS, Flag, Parsed, UsageError, parse_flags, render_help

STATUS_PORT: Final = 15020
TARGET: Final = "/debug/certs"
SECONDS: Final = 10.0
LIMIT_BYTES: Final = 64 << 20  #: a gateway may have thousands
FLAGS: Final = (
    Flag("output", "string", "", "format of the output: json", short="o"),
    Flag("debug-port", "int", STATUS_PORT, "status port of the agent"),
    *GLOBAL_FLAGS,
)
SUMMARY: Final = "Show the certificates and roots that the agent serves to Envoy; never a key."


def cert(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print what the agent serves; return the exit code."""
    del environ
    try:
        flags = parse_flags(FLAGS, argv)
        text = render_help("agent cert [flags]", SUMMARY, FLAGS) if flags.help else _show(flags)
    except (AgentError, UsageError) as error:
        return fail(error)
    sys.stdout.write(text)
    return 0


def _show(flags: Parsed) -> str:
    output = flags.text("output")
    if flags.positionals:
        raise UsageError(f"cert {' '.join(flags.positionals)}: expected flags alone")
    if output not in ("", "json"):
        raise UsageError(f"--output={output!r}: expected json, or nothing for text")
    shown = asyncio.run(_fetch(flags.number("debug-port")))
    return json.dumps(shown, indent=2) + "\n" if output else render(shown, time.time())


async def _fetch(port: int) -> Any:  # noqa: ANN401 - JSON
    where = f"localhost:{port}"
    try:
        response = await fetch(
            "GET",
            "localhost",
            port,
            TARGET,
            timeout_seconds=SECONDS,
            limit_bytes=LIMIT_BYTES,
        )
    except HttpError as error:
        raise AgentError(f"no answer from the agent at {where}: {error}; is it running?") from error
    if response.status != 200:  # noqa: PLR2004 - OK
        raise AgentError(f"the agent at {where} answers {response.status}, without certificates")
    try:
        shown = json.loads(response.body)
    except ValueError:
        shown = None
    if not is_document(shown):
        raise AgentError(f"{where} answers with no certificates; is it the agent's status port?")
    return shown
