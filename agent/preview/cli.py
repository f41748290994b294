"""The command `bootstrap`.

Source: bootstrap.md section 5.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from agent.cli import fail
from agent.errors import AgentError, SystemRefusedError
from agent.preview.process import validate
from agent.process import build, envoy_settings, read_settings
from agent.proxy_flags import PROXY_FLAGS
from agent.settings import Settings
from bootstrap import files
from bootstrap.errors import BootstrapError
from bootstrap.grpc import grpc_bootstrap
from iptables.flags import Flag, UsageError, parse_flags, render_help

FLAGS: Final = (
    Flag(
        "validate", "bool", default=False, help="have Envoy check it; exit code 255 if it refuses"
    ),
    *PROXY_FLAGS,
)
HELP: Final = (
    "agent bootstrap [sidecar|router|waypoint] [flags]",
    (
        "Print what Envoy would start from in this pod, as JSON, and start nothing. Flags and "
        "environment are those of 'agent proxy'; without Envoy (DISABLE_ENVOY=true) it is what "
        "gRPC applications start from."
    ),
)


def bootstrap(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print the bootstrap; return the exit code, 0 or 255."""
    try:
        flags = parse_flags(FLAGS, argv)
        if flags.help:
            sys.stdout.write(render_help(*HELP, FLAGS))
            return 0
        settings, notes = read_settings(flags, environ)
        text = _text(settings, notes)
        envoy = envoy_settings(settings, notes.append)
        sys.stdout.write(f"{text}\n")
        for note in notes:
            sys.stderr.write(f"Warning: {note}\n")
        if envoy.config_yaml:
            sys.stderr.write(f"Note: Envoy merges this over it: {envoy.config_yaml}\n")
        if flags.is_on("validate"):
            config_path = settings.node.proxy_config.config_path
            sys.stderr.write(validate(envoy, text, spare_directory=config_path))
    except (UsageError, BootstrapError, AgentError) as error:
        sys.stdout.flush()
        return fail(error)
    return 0


def _text(settings: Settings, notes: list[str]) -> str:
    node, text = build(settings, notes)
    if settings.template:
        return text
    if text:
        return json.dumps(json.loads(text), indent=2)
    config = settings.node.proxy_config
    if not settings.envoy_enabled:
        return grpc_bootstrap(node, config.config_path, certificates=settings.grpc.certificates)
    try:
        return files.read_text(config.custom_config_file)
    except OSError as error:
        raise SystemRefusedError(
            f"customConfigFile {config.custom_config_file!r}: {error.strerror}"
        ) from error
