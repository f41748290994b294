"""The child process that finds the cloud while everything else starts.

Its answer belongs into the bootstrap, which Envoy reads some 60 ms after it was spawned. A metadata
service answers in a few; what has not been answered by then is left out, so that nothing waits.
Only for a cloud that the user has named there is something to wait for; else the child runs where a
CPU has nothing to do, so that neither Envoy nor the agent lose time to it.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Final

from agent.cloud.platforms import Found
from agent.cloud.settings import CloudSettings

NO_PRIORITY: Final = os.sched_param(0)
LIMIT_BYTES: Final = 65536  #: a pipe's capacity: more would not fit anyway


class Detection:
    """A conversation under way."""

    def __init__(self, settings: CloudSettings, environ: Mapping[str, str]) -> None:
        """Begin it, if there is anybody to ask."""
        #: Whether the user has named the cloud, so that its answer is worth a wait.
        self.is_certain = len(settings.platforms) == 1
        self._pid = 0
        self._pipe = -1
        self._said = b""
        if not settings.platforms:
            return
        hosts = {
            "aws": settings.aws_host,
            "azure": settings.azure_host,
            "gcp": settings.gcp_host,
        }
        words = [f"{name}={hosts[name]}" for name in settings.platforms]
        if "gcp" in settings.platforms and settings.gcp_compute_host:
            words.append(f"compute={settings.gcp_compute_host}")
        self._pipe, theirs = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-P", "-m", "agent.cloud", *words],
                environ,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, theirs, 1),
                ],
                setsigdef=[signal.SIGTERM, signal.SIGINT],
                setsigmask=[],
                scheduler=(os.SCHED_OTHER if self.is_certain else os.SCHED_IDLE, NO_PRIORITY),
            )
        except OSError:  # no cloud is found then; that must not keep a pod from starting
            os.close(self._pipe)
            self._pipe = -1
        finally:
            os.close(theirs)

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is an answer, below 0 for none."""
        return self._pipe

    def read(self) -> bool:
        """Take what the child has said by now; return whether it has said all."""
        try:
            data = os.read(self._pipe, LIMIT_BYTES)
        except BlockingIOError:
            return False
        self._said += data
        return not data

    def finish(self) -> Found | None:
        """Return what was found; end the search where it still goes on."""
        if not self._pid:
            return None
        self.read()
        os.close(self._pipe)
        self._pipe = -1
        os.kill(self._pid, signal.SIGKILL)
        # On a busy machine it may take long to die; it is reaped like an orphan then.
        os.waitpid(self._pid, os.WNOHANG)
        self._pid = 0
        _, *complete = reversed(self._said.split(b"\n"))
        return Found(**json.loads(complete[0])) if complete else None
