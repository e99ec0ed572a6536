"""A producer at work with a spool: it overflows, delivers out of order, begins anew and trims."""

import contextlib

from poe.client.spool.spool import Spool
from poe.errors import StorageError
from tests.client.spools import batch_of, live, take_all

BYTES_MAX = 1200


class Work:
    """What a producer was told by its spool; the first message of a batch stands for it."""

    def __init__(self, kept=(), *, goes_on=False, first=0):
        self.goes_on = goes_on
        """After an error, as a producer that keeps in memory what is refused."""
        self.number = first
        self.tried: list[bytes] = list(kept)
        self.kept: list[bytes] = list(kept)
        """Taken by the spool, and neither done with nor dropped; in order."""

    def run(self, files, after_each=lambda: None):
        spool = Spool(files, bytes_max=BYTES_MAX, fsync=True)
        after_each()
        for action in self.actions(spool):
            with contextlib.suppress(StorageError) if self.goes_on else contextlib.nullcontext():
                action()
            after_each()

    def actions(self, spool):
        taken = []
        yield from [lambda: self.append(spool)] * 16
        yield from [lambda: taken.append(spool.take())] * 4
        yield from (lambda each=each: self.done(spool, each) for each in taken[1:3])
        yield lambda: self.append(spool)
        yield spool.rewind
        for sequence in range(3):
            yield lambda sequence=sequence: self.append(spool, live(sequence).put_id)
        yield from [lambda: self.done(spool, spool.take())] * 6
        yield from [lambda: self.append(spool)] * 3
        yield spool.close

    def append(self, spool, put_id=None):
        batch = batch_of(self.number, put_id=put_id)
        self.number += 1
        self.tried += batch.messages[:1]
        appended = spool.append(batch)
        if appended.address is not None:
            self.kept += batch.messages[:1]
        self.forget(appended.dropped)

    def done(self, spool, spooled):
        if spooled is not None:
            self.forget([spooled])
            spool.done(spooled)

    def forget(self, some):
        names = names_of(some)
        self.kept = [name for name in self.kept if name not in names]


def names_of(some):
    return [each.batch.messages[0] for each in some]


def names_in(files):
    """Open a spool as the next life does; tell the names of its batches."""
    with Spool(files, bytes_max=BYTES_MAX) as spool:
        found = take_all(spool)
        assert spool.count == sum(len(each.batch.messages) for each in found)
        return names_of(found)


def is_subsequence(some, of):
    rest = iter(of)
    return all(each in rest for each in some)
