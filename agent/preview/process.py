"""Has Envoy check a configuration."""

import subprocess
import tempfile

from agent.errors import EnvoyError
from agent.lifecycle.command_line import EnvoySettings, envoy_arguments


def validate(envoy: EnvoySettings, text: str, *, spare_directory: str) -> str:
    """Return what Envoy says to a configuration that it takes.

    Args:
        envoy: how it would be started.
        text: the configuration.
        spare_directory: for a file, where there is no directory for temporary ones; Envoy refuses
            to read anything below /proc.

    Raises:
        EnvoyError: it refuses, or cannot be started.
    """
    suffix = ".json" if text.lstrip().startswith("{") else ".yaml"
    try:
        with tempfile.NamedTemporaryFile(
            "w", suffix=suffix, dir=_directory(spare_directory)
        ) as file:
            file.write(text)
            file.flush()
            arguments = envoy_arguments(envoy._replace(config_file=file.name))
            done = subprocess.run(  # noqa: S603 - the configured Envoy
                [envoy.binary, *arguments, "--mode", "validate"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
    except OSError as error:
        what = error.filename or envoy.binary
        hint = "; set binaryPath in PROXY_CONFIG" if what == envoy.binary else ""
        raise EnvoyError(f"cannot have Envoy check this: {what}: {error.strerror}{hint}") from error
    said = done.stdout.decode(errors="replace")
    if done.returncode:
        raise EnvoyError(f"{envoy.binary} refuses this: {' '.join(said.split())}")
    return said


def _directory(spare: str) -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return spare
