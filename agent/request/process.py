"""Runs a command in our place, or as our child that gets our signals."""

from __future__ import annotations

import os

from agent.request.settings import CommandError

TYPE_CHECKING = False  # stands for that of `typing`, which is not worth its import here
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Mapping
    from typing import NoReturn
else:
    import _signal  # `signal` builds enumerations, which take 2 ms

#: What a runtime or a user may send.
FORWARDED = (
    _signal.SIGTERM,
    _signal.SIGINT,
    _signal.SIGHUP,
    _signal.SIGQUIT,
    _signal.SIGUSR1,
    _signal.SIGUSR2,
)
#: Python ignores these, which a command would inherit.
RESET = (_signal.SIGPIPE, _signal.SIGXFSZ)
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # as a shell has it


class CannotStartError(CommandError):
    """The command cannot be started."""

    def __init__(self, command: str, error: OSError) -> None:
        """Name it."""
        super().__init__(f"{command}: {(error.strerror or str(error)).lower()}")
        self.exit_code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


class Interrupted(BaseException):
    """A signal came while nothing ran that it could be passed on to."""

    def __init__(self, number: int) -> None:
        """Remember which."""
        super().__init__(number)
        self.signal = number


class Job:
    """A command that has yet to be run; signals are taken care of from now on.

    Without a handler pid 1 of a container would not even notice them.
    """

    def __init__(self, command: tuple[str, ...], environ: Mapping[str, str]) -> None:
        """Handle signals."""
        self._command = command
        self._environ = environ
        self._child = 0
        self._starting = False
        self._missed: list[int] = []
        for number in FORWARDED:
            _signal.signal(number, self._on_signal)

    def become(self) -> NoReturn:
        """Run the command in our place."""
        become(self._command, self._environ)

    def run(self) -> int:
        """Run the command and return its exit code, 128 and the signal if one ended it.

        Raises:
            CannotStartError: there is no such command, or it may not be executed.
        """
        self._starting = True
        try:
            child = os.posix_spawnp(
                self._command[0],
                self._command,
                self._environ,
                setsigdef=RESET,
            )
        except OSError as error:
            raise CannotStartError(self._command[0], error) from error
        self._child = child
        for number in self._missed:
            self._pass_on(number)
        ended = status = 0
        while ended != child:  # as pid 1 we may be left others' children
            ended, status = os.waitpid(-1, 0)
        self._child = 0
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _on_signal(self, number: int, _: object) -> None:
        if self._child:
            self._pass_on(number)
        elif self._starting:
            self._missed.append(number)
        else:
            raise Interrupted(number)

    def _pass_on(self, number: int) -> None:
        try:  # noqa: SIM105 - contextlib takes a millisecond
            os.kill(self._child, number)
        except ProcessLookupError:  # it has just ended
            pass


def become(command: tuple[str, ...], environ: Mapping[str, str]) -> NoReturn:
    """Run the command in our place.

    Raises:
        CannotStartError: there is no such command, or it may not be executed.
    """
    for number in RESET:
        _signal.signal(number, _signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environ)  # noqa: S606 - what the user asked for
    except OSError as error:
        raise CannotStartError(command[0], error) from error
