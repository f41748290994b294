"""A port forwarder, run as a program of its own in a pod: `python server.py PORT`.

Standard input is a listening socket, made outside of the pod: a socket stays in the network it was
made in. What connects to it is joined with PORT of the pod's loopback. Needs the standard library
only, and nothing of ours: whoever runs it may be unable to read the rest.
"""

import asyncio
import contextlib
import socket
import sys
from functools import partial
from typing import Final

CHUNK_BYTES: Final = 1 << 16


async def join(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes both ways until both ends have said their last."""
    with contextlib.closing(writer), contextlib.suppress(OSError):
        there, here = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.closing(here):
            await asyncio.gather(_carry(reader, here), _carry(there, writer))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    writer.write_eof()


async def main(argv: list[str]) -> None:
    """Serve until killed."""
    listener = socket.socket(fileno=sys.stdin.fileno())
    server = await asyncio.start_server(partial(join, int(argv[1])), sock=listener)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv))
