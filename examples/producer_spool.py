"""A producer whose messages survive a downtime of the server, and a restart of their own process.

With `spool_dir` they wait on disk while no server can be reached. The next producer on the folder
sends them first; each arrives once, since its batch keeps the number under which the server knows
it again.
"""

import logging
import socket
import tempfile
from pathlib import Path

import poe
from poe.client import Producer


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


logging.getLogger("poe").setLevel(logging.ERROR)  # it would warn that no server can be reached

with tempfile.TemporaryDirectory() as folder:
    url = f"poe://127.0.0.1:{free_port()}"
    spool = Path(folder, "spool")

    # No server yet: `close` does not wait for one, and leaves everything to the next producer.
    with Producer(url, spool_dir=spool) as producer:
        producer.metadata("readings")
        for number in range(1000):
            producer.produce_async("readings", b"reading %d" % number)
        print("not delivered and not on disk:", producer.close(timeout_s=0))

    # Another life of the program. Nothing is produced here, and still it is sent.
    with Producer(url, spool_dir=spool, reconnect_max_s=0.1) as producer:
        print("on disk:", producer.info("readings").spooled_count)
        delivery = producer.produce_async("readings", b"one more")
        port = int(url.rpartition(":")[2])
        with poe.Node(dir=Path(folder, "poe"), port=port) as node:
            delivery.result(timeout_s=20)  # behind all that was there before
            print("on disk:", producer.info("readings").spooled_count)
            messages, pointer = [], 0
            while (record := node.next(b"readings", pointer)) is not None:
                pointer, message = record
                messages.append(message)
            expected = [b"reading %d" % number for number in range(1000)] + [b"one more"]
            print("every reading once, in order:", messages == expected)
            producer.close()
