"""The command `xds`: what the control plane has for this pod, and what its Envoy made of it.

Imports stand in the functions: what help and usage errors do not need must not slow them.
"""

# ruff: noqa: PLC0415 - see above

import asyncio
import json
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from agent.cli import fail
from agent.errors import AgentError
from agent.proxy_flags import PROXY_FLAGS, PROXY_TYPES
from bootstrap.errors import BootstrapError
from iptables.flags import GLOBAL_FLAGS, Flag, Parsed, UsageError, parse_flags, render_help

if TYPE_CHECKING:
    from agent.query.client import Answer
    from agent.settings import Settings

STATUS_PORT: Final = 15020
OWN_FLAGS: Final = (
    Flag("output", "string", "", "get: yaml (default) or json; status and watch: json", short="o"),
    Flag("timeout", "duration", 10.0, "get: how long to wait for the control plane"),
    Flag(
        "proxy-type",
        "string",
        "",
        "get: sidecar, router or waypoint; empty: that of the running agent, else sidecar",
    ),
    Flag("debug-port", "int", STATUS_PORT, "status port of the agent"),
)
FLAGS: Final = (*OWN_FLAGS, *PROXY_FLAGS)
USAGE: Final = "agent xds get TYPE [NAME...]\n  agent xds status\n  agent xds watch"
SUMMARY: Final = (
    "Show what the control plane has for this pod, and what its Envoy made of it.\n"
    "\n"
    "get TYPE [NAME...] asks the control plane as this pod, on a connection of its own, and prints "
    "the resources, in YAML as AGENT_LOCAL_XDS takes them. TYPE is cds, ecds, eds, lds, nds, pcds, "
    "rds, sds or a type URL. istiod has endpoints, routes, extensions and secrets for whoever "
    "names them. Keys and passwords are never printed. The environment, and flags such as "
    "--domain and --meshConfig, are those of 'agent proxy'.\n"
    "status prints, for each type that the running Envoy asked for: SYNCED, its latest push was "
    "acknowledged; STALE, it was not, or was refused; NOT SENT, there was none.\n"
    "watch prints a line for each push once Envoy has answered: what it adds, changes and removes, "
    "milliseconds to the ACK, or why Envoy refused it. ?N were added or changed: what Envoy had "
    "before is not known."
)


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Show it; return the exit code."""
    try:
        flags = parse_flags(FLAGS, argv)
        if flags.help or not flags.positionals:
            sys.stdout.write(render_help(USAGE, SUMMARY, (*OWN_FLAGS, *GLOBAL_FLAGS)))
            return 0
        _run(flags, environ)
    except (UsageError, AgentError, BootstrapError) as error:
        sys.stdout.flush()
        return fail(error)
    except (KeyboardInterrupt, BrokenPipeError, asyncio.CancelledError):
        # Whoever watched has seen enough.
        sys.stderr.close()
        os._exit(0)
    return 0


def _run(flags: Parsed, environ: Mapping[str, str]) -> None:
    match flags.positionals:
        case ["get", type_name, *names]:
            _get(flags, environ, type_name, names)
        case ["status"]:
            _status(flags)
        case ["watch"]:
            asyncio.run(_watch(flags))
        case words:
            said = " ".join(words)
            raise UsageError(f"xds {said}: expected get TYPE [NAME...], status or watch")


def _get(flags: Parsed, environ: Mapping[str, str], type_name: str, names: Sequence[str]) -> None:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it has to say is in the error
    import logging

    from agent.query.request import parse_type

    logging.basicConfig(format="Warning: %(message)s", level=logging.WARNING)
    output = _output(flags, ("yaml", "json"))
    try:
        type_url = parse_type(type_name)
    except ValueError as error:
        raise UsageError(str(error)) from None
    settings = _settings(flags, environ)
    answer = asyncio.run(_ask(settings, type_url, names, flags.seconds("timeout")))
    _print(answer, output or "yaml")
    _remark(answer, names)


def _output(flags: Parsed, known: Sequence[str]) -> str:
    output = flags.text("output")
    if output and output not in known:
        raise UsageError(f"--output={output!r}: expected {' or '.join(known)}")
    return output


def _settings(flags: Parsed, environ: Mapping[str, str]) -> "Settings":
    from agent.process import read_settings

    proxy_type = flags.text("proxy-type") or _running_type(flags.number("debug-port"))
    settings, notes = read_settings(flags._replace(positionals=(proxy_type,)), environ)
    if settings.xds.local:
        raise AgentError(
            f"AGENT_LOCAL_XDS={settings.xds.local!r}: this pod has no control plane to ask; see "
            "what Envoy has with 'agent request GET config_dump'"
        )
    for note in notes:
        sys.stderr.write(f"Warning: {note}\n")
    return settings


def _running_type(port: int) -> str:
    """Return which type of proxy runs here, as its Envoy's node id begins."""
    from agent.query.client import running

    try:
        stream = asyncio.run(running(port, seconds=1))["connection"]["stream"] or {}
    except AgentError:
        stream = {}
    found = (stream.get("node") or "").partition("~")[0]
    return found if found in PROXY_TYPES else PROXY_TYPES[0]


async def _ask(
    settings: "Settings", type_url: str, names: Sequence[str], seconds: float
) -> "Answer":
    from agent.query.client import ask
    from agent.query.request import write_node, write_subscription
    from agent.xds.client import ControlPlane
    from agent.xds.discovery import Kind
    from bootstrap.node import build_node

    node, _ = build_node(settings.node)
    is_delta = settings.options.delta_xds or settings.node.proxy_type == "waypoint"
    kind = Kind.DELTA if is_delta else Kind.SOTW
    request = write_subscription(kind, type_url, names, write_node(node))
    xds = settings.xds
    control_plane = ControlPlane(xds.upstream, xds.keepalive, xds.others)
    return await ask(control_plane, kind, type_url, request, seconds)


def _print(answer: "Answer", output: str) -> None:
    from agent.protobuf.wire import WireError
    from agent.query.render import render

    try:
        found = [render(resource) for resource in answer.resources]
    except (WireError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise AgentError(f"{answer.head.type_url}: a resource cannot be read: {reason}") from error
    if output == "json":
        sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    elif found:
        import yaml

        yaml.safe_dump_all(found, sys.stdout, sort_keys=False, allow_unicode=True, width=1000)


def _remark(answer: "Answer", names: Sequence[str]) -> None:
    from agent.xds.resources import abbreviation

    head = answer.head
    sys.stdout.flush()
    sys.stderr.write(
        f"Note: {abbreviation(head.type_url)} version={head.version!r} "
        f"resources={len(answer.resources)} bytes={answer.size}\n"
    )
    found = {resource.name for resource in answer.resources if resource.name}
    missing = [name for name in names if name not in found] if found or not answer.resources else []
    if missing:
        sys.stderr.write(f"Note: not there: {', '.join(missing)}\n")
    elif not answer.resources:
        sys.stderr.write("Note: istiod has some types only for whoever names what he wants\n")


def _status(flags: Parsed) -> None:
    import time

    from agent.query.client import running
    from agent.query.report import status

    output = _output(flags, ("json",))
    found = asyncio.run(running(flags.number("debug-port")))
    text = json.dumps(found, indent=2) + "\n" if output else status(found, time.time())
    sys.stdout.write(text)


async def _watch(flags: Parsed) -> None:
    from agent.query.client import watch
    from agent.query.report import header, push

    output = _output(flags, ("json",))
    _end_with_reader()
    async for found in watch(flags.number("debug-port")):
        if "end" in found:
            raise AgentError(f"nothing more will come: {found['end']}")
        if output:
            _say(json.dumps(found))
        else:
            _say(push(found) if "result" in found else header())


def _end_with_reader() -> None:
    """Have this task cancelled when nobody reads what it prints any more."""
    task = asyncio.current_task()
    if task and stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
        # There is nothing to read from the end of a pipe for writing, but that the other is gone.
        asyncio.get_running_loop().add_reader(sys.stdout, task.cancel)


def _say(line: str) -> None:
    """Print a line now."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
