"""Applications of a pod, run as a script: HTTP, gRPC, and one whose server speaks first.

Prints a line once all listen. Every answer says who the peer was.
"""

import asyncio
import sys

import grpc

HTTP_PORT = 8080
SERVER_FIRST_PORT = 3306
GRPC_PORT = 50051


async def serve_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with the peer and the request's own bytes."""
    while head := await read_head(reader):
        body = f"peer={writer.get_extra_info('peername')[0]}\r\n".encode() + head
        writer.write(
            b"HTTP/1.1 200 Fine Indeed\r\nX-MixedCase: Yes\r\nContent-Length: %d\r\n\r\n"
            % len(body)
        )
        writer.write(body)
        await writer.drain()
    writer.close()


async def read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


async def serve_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(f"hello {writer.get_extra_info('peername')[0]}\n".encode())
    await reader.read()
    writer.close()


async def echo(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    context.set_trailing_metadata((("seen", context.peer()),))
    return request


async def main() -> None:
    """Listen on all addresses of both families."""
    await asyncio.start_server(serve_http, ["0.0.0.0", "::"], HTTP_PORT)
    await asyncio.start_server(serve_first, ["0.0.0.0", "::"], SERVER_FIRST_PORT)
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("test", {"Echo": handler}),)
    )
    server.add_insecure_port(f"[::]:{GRPC_PORT}")
    await server.start()
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
