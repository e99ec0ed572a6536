"""Syncs that nobody waits for begin together; few of them at a time hold nobody up."""

from contextlib import contextmanager
from threading import Event, current_thread

from poe.broker.appendix.sync_rounds import SyncRounds
from poe.storage import SharedSync
from torture.layers.memory import MemoryFiles

WAIT_S = 10


class Jobs:
    """So many jobs, each of which notes its thread."""

    def __init__(self, count):
        self.count = count
        self.threads = []
        self.done = Event()

    def __call__(self):
        self.threads.append(current_thread().ident)
        if len(self.threads) == self.count:
            self.done.set()

    def submit_to(self, rounds):
        for _ in range(self.count):
            rounds.submit(self)
        assert self.done.wait(WAIT_S)


def test_many_are_called_by_one_thread():
    jobs = Jobs(100)
    jobs.submit_to(SyncRounds(SharedSync(MemoryFiles())))
    assert len(set(jobs.threads)) == 1


def test_what_comes_later_is_another_round():
    rounds = SyncRounds(SharedSync(MemoryFiles()))
    for count in (1, 100, 1, 20):
        Jobs(count).submit_to(rounds)


@contextmanager
def one_that_hangs(rounds):
    """Have a job of a round hang until the end of the block."""
    go_on, ended = Event(), Event()

    def hang():
        assert go_on.wait(WAIT_S)
        ended.set()

    rounds.submit(hang)
    yield
    go_on.set()
    assert ended.wait(WAIT_S)


def test_one_of_few_that_hangs_holds_up_no_other():
    rounds = SyncRounds(SharedSync(MemoryFiles()))
    with one_that_hangs(rounds):
        Jobs(3).submit_to(rounds)
        Jobs(3).submit_to(rounds)


class Refusing(MemoryFiles):
    def sync_all(self):
        raise OSError


def test_where_the_disk_is_not_to_be_asked_at_once_none_waits_for_another():
    shared = SharedSync(Refusing())
    shared.sync_all()
    rounds = SyncRounds(shared)
    with one_that_hangs(rounds):
        Jobs(30).submit_to(rounds)
