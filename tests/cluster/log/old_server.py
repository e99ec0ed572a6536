"""Says what a server says as it is connected to, and nothing else."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def old_server(**said: object) -> Iterator[str]:
    """Listen, and say of oneself what is given; the url is where."""
    info = {
        "server_id": "X", "server_name": "old", "proto": 1, "headers": True, "jetstream": True,
        "max_payload": 64 << 20, **said,
    }  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ending = threading.Event()
        listening.settimeout(0.1)

        def serve(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                client.settimeout(5)
                client.sendall(f"INFO {json.dumps(info)}\r\n".encode())
                while content := client.recv(65536):
                    client.sendall(b"PONG\r\n" * content.count(b"PING"))

        def accept() -> None:
            while not ending.is_set():
                with contextlib.suppress(TimeoutError):
                    client, _ = listening.accept()
                    threading.Thread(target=serve, args=(client,), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"nats://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ending.set()
            thread.join()
