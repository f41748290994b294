"""`python -m agent.xds.local`: resource files on standard input, resources on standard output.

Both are delta responses: a file is a resource without type, named as the file. See process.py.

Files are the user's, and what a few lines of YAML can cost has no bound. So this process has one,
and says which file it was at; what is told last on standard error is the reason.
"""

import os
import resource
import signal
import sys
import traceback
from typing import Final

from agent.xds.discovery import Kind, read_resources, write_response
from agent.xds.local.convert import convert
from agent.xds.local.parse import FileError, describe
from agent.xds.local.process import BAD_DATA

#: For some 10 MB of YAML.
CPU_SECONDS: Final = 20
#: What a signal handler cannot interrupt, the kernel does.
GRACE_SECONDS: Final = 5
#: The interpreter and all of Envoy's types have 100 MB.
MEMORY_BYTES: Final = 1 << 30
#: Envoy and the application go first.
NICENESS: Final = 10


class _Progress:
    """Which file is being converted."""

    file_name = "?"

    def begin(self, file_name: str) -> None:
        self.file_name = file_name

    def limit(self) -> None:
        """Bound what this process may take; whoever started it may have set lower bounds."""
        seconds = _limit(resource.RLIMIT_CPU, CPU_SECONDS, CPU_SECONDS + GRACE_SECONDS)
        _limit(resource.RLIMIT_AS, MEMORY_BYTES, MEMORY_BYTES)

        def give_up(_number: int, _frame: object) -> None:
            sys.stderr.write(f"{self.file_name}:1: takes more than {seconds} s to convert\n")
            sys.stderr.flush()
            os._exit(BAD_DATA)

        signal.signal(signal.SIGXCPU, give_up)


def _limit(kind: int, soft: int, hard: int) -> int:
    """Set a limit, and return its soft value, which a signal tells of."""
    _, allowed = resource.getrlimit(kind)
    if allowed != resource.RLIM_INFINITY and allowed < hard:
        soft, hard = min(soft, allowed - 1), allowed
    resource.setrlimit(kind, (soft, hard))
    return soft


def main() -> int:
    """Convert; return BAD_DATA, and say why, if a file is at fault."""
    progress = _Progress()
    progress.limit()
    os.nice(NICENESS)
    _, files = read_resources(sys.stdin.buffer.read())
    try:
        version, resources = convert({file.name: file.body for file in files}, progress.begin)
    except FileError as error:
        sys.stderr.write(f"{error}\n")
        return BAD_DATA
    except Exception as error:  # noqa: BLE001 - a fault of ours, or no memory: the file shows it
        traceback.print_exc()
        sys.stderr.write(f"{progress.file_name}:1: {describe(error)}\n")
        return BAD_DATA
    output = write_response(Kind.DELTA, "", version=version, nonce="", resources=resources)
    sys.stdout.buffer.write(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
