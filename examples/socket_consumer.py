"""Read a topic through a socket: from the beginning, in chunks, and on from a pointer.

    python socket_consumer.py                      # starts a node of its own, with a few messages
    python socket_consumer.py HOST PORT TOPIC      # reads yours

The server keeps no state for a consumer: its position is the pointer it asks with.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import poe

CHUNK = 1_000


@contextmanager
def server() -> Iterator[tuple[str, int, str]]:
    """Give address and topic from the command line, else those of a node in a temporary folder."""
    if len(sys.argv) == 4:
        yield sys.argv[1], int(sys.argv[2]), sys.argv[3]
        return
    with tempfile.TemporaryDirectory() as folder, poe.Node(dir=folder, port=0) as node:
        assert node.address is not None
        node.put_many("readings", [b"reading %d" % number for number in range(2_500)])
        yield *node.address, "readings"


with server() as (host, port, topic), poe.protocol.socket(host, port, timeout_s=10) as socket:
    pointer = 0
    while records := socket.read(topic, pointer, CHUNK):
        (_, oldest), (pointer, newest) = records[0], records[-1]
        print(f"{len(records)} messages: {oldest.decode()} … {newest.decode()}")
    print("nothing follows:", records)

    written = socket.write(topic, [b"one more"])
    print(
        "on from the last pointer:", socket.read(topic, pointer, CHUNK) == [(written, b"one more")]
    )
    # `wait` returns as soon as something follows the pointer, or False after the time-out.
    print("anything behind that one:", socket.wait(topic, written, timeout_s=0.05))
