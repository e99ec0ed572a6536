"""Says what a server says as it is connected to, and nothing else."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator


def answer_pings(client: socket.socket, number: int) -> None:
    """Answer each, to whichever client."""
    del number
    while content := client.recv(65536):
        client.sendall(b"PONG\r\n" * content.count(b"PING"))


@contextlib.contextmanager
def old_server(
    serve: Callable[[socket.socket, int], None] = answer_pings, **said: object
) -> Iterator[str]:
    """Listen, and say of oneself what is given; the url is where.

    `serve` does the rest for each client, which it gets with its number.
    """
    info = {
        "server_id": "X", "server_name": "old", "version": "2.15.1", "proto": 1, "headers": True,
        "jetstream": True, "max_payload": 64 << 20, **said,
    }  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ending = threading.Event()
        listening.settimeout(0.1)

        def begin(client: socket.socket, number: int) -> None:
            with client, contextlib.suppress(OSError):
                client.settimeout(5)
                client.sendall(f"INFO {json.dumps(info)}\r\n".encode())
                serve(client, number)

        def accept() -> None:
            number = 0
            while not ending.is_set():
                with contextlib.suppress(TimeoutError):
                    client, _ = listening.accept()
                    threading.Thread(target=begin, args=(client, number), daemon=True).start()
                    number += 1

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"nats://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ending.set()
            thread.join()
