"""A server without descriptors: no crash, and service within a second after there are some."""

import contextlib
import resource
import time
from random import Random

from poe.errors import PoeError
from torture.checker import Journal
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import Server, read_topics, wait_until_served

_SERVED_MAX_S = 1.0


def play(run: Run) -> None:
    """Lower the limit of a running server under load, raise it again, check."""
    run.each(lambda trial: _trial(run, trial))


def _trial(run: Run, trial: Trial) -> None:
    random = trial.random
    journal = Journal()
    folder = trial.folder / "data"
    options = {"count_limit": 200, "check_interval": 0.02, "worker_timeout": 0.05}
    with Server(folder, **options) as server, contextlib.ExitStack() as clients:  # type: ignore[arg-type]  # of several types
        producers = [
            Producer(server, journal, b"t%d" % number, Random(random.random()), window=4)
            for number in range(3)
        ]
        for producer in producers:
            producer.start()
        pid = server.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        limit = max(server.descriptor_count() + random.randint(-3, 10), 20)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
        for _ in range(30):
            clients.enter_context(server.connect_raw())
        with contextlib.suppress(PoeError), server.connect(0.3) as client:
            client.write(b"one more topic", [b"m"])
        time.sleep(0.1)  # of load without descriptors
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        clients.close()
        served_s = wait_until_served(server)
        run.measure("served_s", served_s)
        trial.expect(is_true=served_s <= _SERVED_MAX_S, otherwise=f"served after {served_s:.2f} s")
        for producer in producers:
            producer.stop()
        trial.failures += journal.judge(read_topics(server))
        trial.expect(is_true=server.is_alive, otherwise="the server has ended")
    with Server(folder, **options) as server:  # type: ignore[arg-type]  # as above
        trial.failures += journal.judge(read_topics(server))
    refused = sum(len(producer.refused) for producer in producers)
    trial.note(acked=journal.acked_count(), refused=refused)
