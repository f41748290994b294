"""Whole-process time of `agent wait`, the postStart hook, on a pod that is ready.

Method: in a network namespace of its own, a server answers 200 on 127.0.0.1:15021. `agent wait`,
with and without a command, and an empty Python program are started in turn, 30 times each; the
time is from spawn to reaped exit.
Target: performance.md, last table.
"""

import os
import signal
import socket
import statistics
import sys

from shared.pod import AGENT, compile_sources, enter_namespace, wall_milliseconds

RUNS = 30
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def serve(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(ANSWER)


def main() -> None:
    enter_namespace()
    compile_sources()
    programs = {
        "agent wait": [AGENT, "wait"],
        "agent wait --timeoutSeconds=60": [AGENT, "wait", "--timeoutSeconds=60"],
        "agent wait --no-quit -- true": [AGENT, "wait", "--no-quit", "--", "true"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    with socket.create_server(("127.0.0.1", 15021)) as listener:
        server = os.fork()
        if not server:
            serve(listener)
        try:
            taken: dict[str, list[float]] = {name: [] for name in programs}
            for argv in programs.values():
                wall_milliseconds(argv)  # byte code and page cache
            for _ in range(RUNS):
                for name, argv in programs.items():
                    taken[name].append(wall_milliseconds(argv))
        finally:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
    for name, times in taken.items():
        print(f"{name:32} median {statistics.median(times):5.1f} ms   max {max(times):5.1f} ms")


if __name__ == "__main__":
    main()
