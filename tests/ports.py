"""Ports for servers of tests."""

import socket


def free_port() -> int:
    """A port that nobody listens on; should somebody take it meanwhile, the test fails loudly."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
