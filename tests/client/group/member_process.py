"""A member of a group in a process of its own, which can be killed; prints what it gets.

`python -m tests.client.group.member_process consumer|queue URL`: each message a line, flushed
before it is dealt with.
"""

import subprocess
import sys
import threading

from poe.client import Consumer, Queue
from tests.python_process import ROOT, environment

TOPICS = ["t-0", "t-1", "t-2", "t-3"]
SESSION_S = 2


class MemberProcess:
    """Runs from construction until it is killed, or the block ends; `got` is what it has told."""

    def __init__(self, kind, place):
        self.got: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.client.group.member_process", kind, place],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(),
        )
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def kill(self):
        """End it as a lack of memory or `kill -9` does."""
        self.process.kill()
        self.process.wait(10)
        self._reading.join()

    def _read(self):
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.got.append(line.strip())


def _say(value):
    print(value.decode(), flush=True)


def _consume(place):
    options = {"group_options": {"session_s": SESSION_S}, "commit_interval_s": 0.02}
    with Consumer(place, TOPICS, group="g", follow=True, batch=10, **options) as consumer:
        for received in consumer:
            _say(received.value)


def _work(place):
    options = {"group_options": {"session_s": SESSION_S}, "batch": 20}
    with Queue(place, "t-0", group="g", **options) as queue:
        for job in queue:
            with job:
                _say(job.value)


if __name__ == "__main__":
    {"consumer": _consume, "queue": _work}[sys.argv[1]](sys.argv[2])
