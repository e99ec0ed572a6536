"""A work queue: each message is a job of one worker, tried again where it fails, then given up."""

import logging
from typing import Any

from poe.client import GroupWorker, Job, Queue
from poe.client.group.dead_letter import DeadLetter
from poe.testing import broker, wait_until

logging.getLogger("poe").addHandler(logging.NullHandler())
OPTIONS: dict[str, Any] = {"group": "mailers", "group_options": {"retry_s": 0, "attempts_max": 3}}

with broker() as server:  # yours has a url such as poe://localhost:5555
    with Queue(server.url, "mails", **OPTIONS) as queue:
        queue.put([b"hello Ann", b"hello Bob"])
        with queue.get() as job:
            print("done when the block ends:", job.value)
        queue.get().nack(reason="no network")
        with queue.get() as job:
            print(f"attempt {job.attempts + 1}:", job.value)

    sent: list[bytes | None] = []

    def send(job: Job) -> None:
        if job.value == b"hello nobody":
            raise ValueError(job.value)
        sent.append(job.value)

    with GroupWorker(server.url, "mails", send, concurrency=4, **OPTIONS) as worker:
        with Queue(server.url, "mails", **OPTIONS) as queue:
            queue.put([b"hello %d" % number for number in range(20)])
            queue.put(b"hello nobody")
            queue.put(b"hello later", delay_s=0.1)
        wait_until(lambda: len(sent) == 21 and b"mailers.dead" in server.node.topics(), 20)
        print(f"{len(sent)} sent, {worker.statistics()['retry']} attempts failed")

    found = server.node.next("mailers.dead", 0)
    assert found is not None
    letter = DeadLetter.of(found[1])
    print("given up:", letter.message, "after", letter.attempts, "attempts:", letter.reason)
