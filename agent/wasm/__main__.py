"""`python -m agent.wasm SETTINGS`: orders on the socket that is standard input, outcomes back.

The agent starts it for as long as there is something to fetch, see process.py. It ends when the
agent has closed the socket, or is gone.
"""

import asyncio
import gc
import os
import random
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

gc.disable()  # nothing of what is imported is ever garbage: a tenth of the time until it is there

from agent.wasm.fetch.client import Surroundings  # noqa: E402 - after the above
from agent.wasm.fetch.run import serve  # noqa: E402 - after the above
from agent.wasm.order import read_settings  # noqa: E402 - after the above

#: Of one order: a pull secret, or an extension in JSON's form.
LINE_BYTES: Final = 64 << 20


async def main(settings: str) -> None:
    """Serve until there is nobody to serve."""
    gc.enable()
    gc.freeze()
    surroundings = Surroundings(os.environ, random.random, asyncio.sleep)
    sock = socket.socket(fileno=os.dup(0))
    reader, writer = await asyncio.open_connection(sock=sock, limit=LINE_BYTES)
    await serve(reader, writer, read_settings(settings), surroundings)
    # Nothing is left to do. Threads may still unpack or resolve, and asyncio would wait for them.
    os._exit(0)


if __name__ == "__main__":
    with suppress(OSError):
        # Where memory is short, the kernel is to take this one and not Envoy.
        Path("/proc/self/oom_score_adj").write_text("1000")
    asyncio.run(main(sys.argv[1]))
