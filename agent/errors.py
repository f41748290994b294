"""Every error this package raises on purpose.

AgentError                 exit code 255, printed as one line, never retried
├── SettingsError          unusable flags, environment or files; lists every problem
├── SystemRefusedError     the kernel or the file system said no: port taken, no permission
├── EnvoyError             Envoy could not be started or did not do what it was asked
├── SecretError            a key, certificate or root cannot be had now; retried, never fatal
└── HttpError              a request of ours got no usable answer (agent/http/message.py)
"""

from collections.abc import Sequence


class AgentError(Exception):
    """Something the user must act on; its text is one line that says what and how."""


class SettingsError(AgentError):
    """Unusable settings; `problems` holds one line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class SystemRefusedError(AgentError):
    """The operating system refused something the agent cannot do without."""


class EnvoyError(AgentError):
    """Envoy could not be started, or its admin port did not answer as it must."""


class SecretError(AgentError):
    """A secret cannot be had now; what is there stays in use, and it is asked for again."""
