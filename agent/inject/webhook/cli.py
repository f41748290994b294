"""The command `injector`: the admission webhook.

Imports stand in the functions: help and usage errors need nothing of aiohttp.
"""

# ruff: noqa: PLC0415 - see above

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from agent.cli import fail
from agent.errors import AgentError, SettingsError
from agent.inject.cli import CONFIGURATION_FLAGS, sources_of
from iptables.flags import GLOBAL_FLAGS, Flag, Parsed, UsageError, parse_flags, render_help

MAX_PORT: Final = 65535
FLAGS: Final = (
    Flag("address", "string", "", "address to listen on; empty: all of both families"),
    Flag("port", "int", 15017, "port of the webhook, with TLS"),
    Flag("monitoring-port", "int", 15014, "port of /metrics, /ready and /healthz; 0: none"),
    Flag("tlsCertFile", "string", "/etc/mesh-agent/tls/tls.crt", "certificate, with its chain"),
    Flag("tlsKeyFile", "string", "/etc/mesh-agent/tls/tls.key", "its key"),
    Flag("drain", "duration", 5.0, "from SIGTERM to the end of listening"),
    Flag(
        "print-webhook",
        "string",
        "",
        "print the MutatingWebhookConfiguration for a service, name.namespace, and serve nothing",
    ),
    Flag("caFile", "string", "", "root certificate that is printed with it"),
    Flag(
        "enable-namespaces-by-default",
        "bool",
        default=False,
        help="have it ask about pods that nothing labels, for the default revision",
    ),
    Flag("cluster", "bool", default=True, help="ask the API server about nodes and namespaces"),
    *CONFIGURATION_FLAGS,
    *GLOBAL_FLAGS,
)
HELP: Final = (
    "agent injector [flags]",
    (
        "Be the admission webhook that puts the agent into pods. Certificate and configuration "
        "files are read again when they change; what cannot be used changes nothing."
    ),
)


def injector(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Serve until asked to stop; return the exit code, 0 or 255."""
    try:
        flags = parse_flags(FLAGS, argv, environ=environ)
        if flags.help:
            sys.stdout.write(render_help(*HELP, FLAGS))
        elif flags.text("print-webhook"):
            sys.stdout.write(_webhook(flags))
        else:
            _serve(flags, environ)
    except (UsageError, AgentError) as error:
        return fail(error)
    return 0


def _webhook(flags: Parsed) -> str:
    """Return what registers the webhook, as YAML."""
    from agent.inject.files import read_text
    from agent.inject.webhook.registration import Registration, registration
    from agent.inject.yaml_text import dump

    service, _, namespace = flags.text("print-webhook").partition(".")
    if not service or not namespace:
        shown = flags.text("print-webhook")
        raise UsageError(f"--print-webhook={shown!r}: expected a service as name.namespace")
    wanted = Registration(
        service=service,
        namespace=namespace,
        revision=flags.text("revision"),
        root=read_text(flags.text("caFile")) if flags.text("caFile") else "",
        by_default=flags.is_on("enable-namespaces-by-default"),
    )
    return dump(registration(wanted))


def _serve(flags: Parsed, environ: Mapping[str, str]) -> None:
    from agent.log import set_up
    from agent.scopes import parse_log

    ports = {name: flags.number(name) for name in ("port", "monitoring-port")}
    for name, port in ports.items():
        if not 0 <= port <= MAX_PORT:
            raise UsageError(f"--{name}={port}: expected a port in 0..{MAX_PORT}")
    if flags.positionals:
        raise UsageError(f"injector {' '.join(flags.positionals)}: expected flags alone")
    sources = sources_of(flags)
    problems: list[str] = []
    log = parse_log(flags, problems)
    if problems:
        raise SettingsError(problems)
    set_up(log)
    import asyncio

    from agent.inject.cluster.client import api_server_address
    from agent.inject.webhook.run import InjectorSettings, run

    settings = InjectorSettings(
        sources=sources,
        certificate=flags.text("tlsCertFile"),
        key=flags.text("tlsKeyFile"),
        host=flags.text("address"),
        port=ports["port"],
        monitoring_port=ports["monitoring-port"],
        native=flags.text("native-sidecars"),
        drain_seconds=flags.seconds("drain"),
        api_server=api_server_address(environ) if flags.is_on("cluster") else "",
    )
    asyncio.run(run(settings))
