"""A queue inside one process: a producer thread, a consumer that resumes where it stopped.

A consumer keeps one number, the pointer of the last message it is done with. Whoever keeps it
across a restart misses nothing and sees nothing twice.
"""

import tempfile
import threading
from collections.abc import Iterator
from itertools import islice

import poe

TOPIC = b"jobs"
JOBS_COUNT = 1_000


def produce(node: poe.Node, arrived: threading.Event) -> None:
    """Put numbered jobs, and wake the consumer after each."""
    for number in range(JOBS_COUNT):
        node.put(TOPIC, b"job %d" % number)
        arrived.set()


def follow(node: poe.Node, pointer: int, arrived: threading.Event) -> Iterator[tuple[int, bytes]]:
    """Yield what follows `pointer`; wait where nothing does yet."""
    while arrived.wait(timeout=10):
        arrived.clear()  # before looking: a job that comes while we look wakes us once more
        while (record := node.next(TOPIC, pointer)) is not None:
            pointer, _ = record
            yield record


with tempfile.TemporaryDirectory() as folder:
    arrived = threading.Event()
    with poe.Node(dir=folder, port=None) as node:  # port None: nobody connects from outside
        producer = threading.Thread(target=produce, args=(node, arrived))
        producer.start()
        done = list(islice(follow(node, 0, arrived), 400))
        producer.join()
    bookmark, last_message = done[-1]
    print(f"before the restart: {len(done)} jobs done, the last is {last_message.decode()!r}")

    with poe.Node(dir=folder, port=None) as node:
        arrived.set()  # there is something to look at already
        rest = list(islice(follow(node, bookmark, arrived), JOBS_COUNT - len(done)))
        print(f"after the restart: goes on with {rest[0][1].decode()!r}, {len(rest)} jobs done")
        print("left over:", node.next(TOPIC, rest[-1][0]))

    messages = [message for _, message in done + rest]
    assert messages == [b"job %d" % number for number in range(JOBS_COUNT)]
    print("every job once, in order")
