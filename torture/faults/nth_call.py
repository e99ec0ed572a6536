"""A system call of a whole server fails or is short, mmap and sendfile among them."""

import contextlib
import errno
from random import Random

from poe.errors import PoeError
from torture.checker import Journal
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import NotReady, Server, read_topics, wait_until_served
from torture.shim import CALLS, SHORT, Shim

_TOPICS = (b"one", b"two", b"three")
_ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EINTR, errno.EMFILE)
_SHORT_CALLS = frozenset({"pwrite", "pread", "sendfile"})


def play(run: Run) -> None:
    """Run a server under load and let a call fail, once or for a while, in its life or start."""
    shim = Shim(run.folder, run.folder)
    run.each(lambda trial: _trial(trial, shim))


def _trial(trial: Trial, shim: Shim) -> None:
    random = trial.random
    journal = Journal()
    folder = trial.folder / "data"
    options = {"ack": random.choice(["flushed", "fsync"]), "worker_timeout": 0.02,
               "check_interval": 0.02, "count_limit": 200}  # fmt: skip
    call = CALLS[trial.number % len(CALLS)]
    errors = (*_ERRORS, SHORT) if call in _SHORT_CALLS else _ERRORS
    error_number = random.choice(errors)
    nth = random.randrange(30)
    # An interrupted call is made again, by the interpreter itself.
    is_for_ever = random.random() < 0.3 and error_number != errno.EINTR
    try:
        with Server(folder, environment=shim.environment, **options) as server:  # type: ignore[arg-type]  # of several types
            for has_fault in (True, False):
                if has_fault:
                    shim.fail(call, nth, error_number, is_for_ever=is_for_ever)
                _load(server, journal, random)
                with contextlib.suppress(PoeError):
                    read_topics(server, limit=100)
                if has_fault:
                    trial.note(failed_calls=shim.failed_count)
                    shim.heal()
                    wait_until_served(server)
            trial.expect(is_true=server.is_alive, otherwise="the server has ended")
            trial.failures += journal.judge(read_topics(server))
        # A start that meets the fault may be refused. The next one has everything.
        shim.fail(call, random.randrange(30), error_number, is_for_ever=False)
        with contextlib.suppress(NotReady):
            Server(folder, environment=shim.environment, **options).kill()  # type: ignore[arg-type]  # as above
    finally:
        shim.heal()
    with Server(folder, **options) as server:  # type: ignore[arg-type]  # as above
        trial.failures += journal.judge(read_topics(server))
    if trial.failures:
        trial.failures.append(f"{call} {nth}, {error_number=}, {is_for_ever=}")
    trial.note(acked=journal.acked_count())


def _load(server: Server, journal: Journal, random: Random) -> None:
    producers = [
        Producer(server, journal, topic, Random(random.random()), window=2, puts_max=60)
        for topic in _TOPICS
    ]
    for producer in producers:
        producer.start()
    for producer in producers:
        producer.join(30)
