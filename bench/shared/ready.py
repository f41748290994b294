"""The agent's place beside an Envoy without one: `python ready.py` answers 200 on port 15020."""

import socket


def main() -> None:
    """Serve until killed."""
    with socket.create_server(("127.0.0.1", 15020)) as listener:
        print("listening", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


if __name__ == "__main__":
    main()
