"""Put messages through a socket, one batch at a time and many batches at once.

    python socket_producer.py               # starts a node of its own to talk to
    python socket_producer.py HOST PORT     # talks to yours

A batch is stored whole or not at all, and its pointer comes back when it is safe: then it is
acknowledged. `write_batches` sends further batches while replies are under way.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import poe


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """Give the address from the command line, else that of a node in a temporary folder."""
    if len(sys.argv) == 3:
        yield sys.argv[1], int(sys.argv[2])
        return
    with tempfile.TemporaryDirectory() as folder, poe.Node(dir=folder, port=0) as node:
        assert node.address is not None
        yield node.address


with server() as (host, port), poe.protocol.socket(host, port, timeout_s=10) as socket:
    socket.write("greetings", [b"hello", b"world!"])
    print("2 messages acknowledged")

    batches = [[b"reading %d" % (100 * i + j) for j in range(100)] for i in range(50)]
    pointers = list(socket.write_batches("readings", batches))
    print(
        len(pointers), "batches of 100 acknowledged, pointers rise:", sorted(pointers) == pointers
    )

    try:
        socket.write("readings", [b"good", b""])
    except poe.PoeError as error:
        print("refused:", error)
    print("nothing of the refused batch is there:", socket.read("readings", pointers[-1], 10))
