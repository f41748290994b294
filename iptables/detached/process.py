"""Sees an action through in a child that outlives this process.

The kernel commits one table of one family at a time, so a change is several steps, and a run that
was killed between them would leave a mixture of old and new rules. The child is in a session of its
own: a kill of the command, or of its process group, reaches neither it nor the tools that it runs,
and what it has begun it finishes, or undoes where a step is refused.

What remains is a kill of the child itself between two steps: by its own number, or together with
all of its container (the end of a pid namespace, the OOM killer's whole cgroup). The next run then
completes what it finds or, with --reconcile, replaces it. A loss of power loses old and new alike.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from iptables.errors import CaptureError, SystemRefusedError

ENDED: Final = (
    "the process that changes the rules was ended early ({}) and may have changed some of them: "
    "run the command again"
)


def see_through(action: Callable[[], None]) -> None:
    """Do an action in a child; return or raise as it does.

    The child has what this process has open, the lock among it: who waits for that lock waits for
    the child too. Where there can be no child, the action is done here.

    Raises:
        CaptureError: the action raised it.
        SystemRefusedError: something ended the child.
    """
    _flush()
    try:
        reading, writing = os.pipe()
    except OSError:  # there are too many files: what needs none still works
        action()
        return
    try:
        child = os.fork()
    except OSError:  # a profile of seccomp may refuse it; libiptc then still works
        child = -1
    if not child:
        _act(action, writing)
    os.close(writing)
    with open(reading, "rb") as pipe:  # noqa: PTH123 - a descriptor
        raised = pipe.read()
    if child < 0:
        action()
        return
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        raise SystemRefusedError(ENDED.format(how))
    if raised:
        raise _loaded(raised)


def _flush() -> None:
    for file in (sys.stdout, sys.stderr):
        with suppress(OSError):  # nobody reads it
            file.flush()


def _act(action: Callable[[], None], writing: int) -> NoReturn:
    """Do the action in the child, tell what it raised, and end."""
    status = 1
    try:
        os.setsid()
        raised = _raised_by(action)
        with suppress(OSError):  # whoever waits has been killed
            os.write(writing, raised)
        _flush()
        status = 0
    except BaseException:  # noqa: BLE001 - a defect of ours: as told by any other program
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def _raised_by(action: Callable[[], None]) -> bytes:
    """Return the error of an action as bytes, none where there was none."""
    try:
        action()
    except CaptureError as error:
        import pickle  # noqa: PLC0415 - 2 ms that only a failure needs

        return pickle.dumps(error)
    return b""


def _loaded(raised: bytes) -> CaptureError:
    import pickle  # noqa: PLC0415 - as above

    error: CaptureError = pickle.loads(raised)  # noqa: S301 - of this very process's child
    return error
