"""The original and we work on one folder by turns, and die on it; each reads what the other wrote.

Reading changes no byte of data and index, and neither starts on a folder that the other works on or
has died on: but for us, once the other is dead for certain.
"""

from collections.abc import Mapping
from pathlib import Path
from random import Random

from poe.errors import SegmentLocked, StoreLocked
from poe.storage import Store
from torture.checker import Journal, Put, Sender, Stored
from torture.layers.watched import Before, Killing
from torture.original import Original, Refused
from torture.scenario import Run, Trial
from torture.store_process import recover_and_read, run_steps
from torture.workload import START_US, make_steps

_TURNS = 4
_TOPICS = (b"t0", b"t1")


def play(run: Run) -> None:
    """Make up a history of turns in each trial."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    random = trial.random
    history = _History(trial, trial.folder / "data")
    for turn in range(_TURNS):
        history.work(START_US + turn * 1_000_000_000, random)
        history.let_original_work(random)
    trial.note(acked=history.journal.acked_count())


class _History:
    """One folder and all that was put into it."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        self.journal = Journal()
        self._trial = trial
        self._folder = folder
        self._stored: Stored = {}

    def work(self, now_us: int, random: Random) -> None:
        """Do some steps with our store, which may be killed; then have it recover and close."""
        steps = make_steps(random, self.journal, 20)
        ends_well = random.random() < 0.4
        before: Before = (lambda _: None) if ends_well else Killing(random.randrange(200), random)
        was_killed = run_steps(self._folder, steps, "flushed", now_us, before)
        self._trial.note(kills_of_ours=was_killed)
        # Without its index, the original does not know of a segment.
        locks = self._folder.glob("topics/*/*_lock")
        if was_killed and any(Path(str(lock)[:-5] + "_index").exists() for lock in locks):
            self._expect_refusal()
        self._read(set())

    def let_original_work(self, random: Random) -> None:
        """Have the original read all, and put; it may be killed."""
        before = self._contents()
        with Original(self._folder) as original:
            found = original.read_all(random.choice([1, 2, 3, 100]))
            self._expect(found == _without_empty(self._stored), "the original reads other messages")
            self._expect(self._contents() == before, "the original has changed what it read")
            unsynced = self._put(original, random)
            has_lock = any(self._folder.glob("topics/*/*_lock"))
            if has_lock:
                self._expect(_is_refused(self._folder), "we started beside the original")
            if random.random() < 0.4:
                for put in self._some_puts(random):
                    original.begin(put)
                    unsynced.add(put)
                original.kill()
                self._trial.note(kills_of_original=1)
                self._read(unsynced)
                return
        before = self._contents()
        self._read(set())
        self._expect(self._contents() == before, "we have changed what we read")

    def _put(self, original: Original, random: Random) -> set[Put]:
        """Have it put some; tell what may not be written yet."""
        unsynced: set[Put] = set()
        for put in self._some_puts(random):
            original.put(put)
            unsynced.add(put)
            if random.random() < 0.1:
                original.sync(put.topic)
                unsynced = {each for each in unsynced if each.topic != put.topic}
            if random.random() < 0.1:
                original.rotate()
        return unsynced

    def _some_puts(self, random: Random) -> list[Put]:
        sender = Sender(self.journal, random)
        count = random.randrange(40)
        return [sender.begin(random.choice(_TOPICS), count_max=1) for _ in range(count)]

    def _read(self, may_be_lost: set[Put]) -> None:
        """Have our store recover, read all and close; judge what it has read."""
        self._stored = recover_and_read(self._folder, "flushed")
        self._trial.failures += self.journal.judge(
            self._stored, may_lose=lambda put: put in may_be_lost
        )

    def _expect_refusal(self) -> None:
        """Expect that the original does not start behind a lock of ours, and changes nothing."""
        before = self._contents()
        try:
            with Original(self._folder):
                self._expect(False, "the original started over our lock")
        except Refused:
            self._trial.note(refusals=1)
        self._expect(self._contents() == before, "the original has changed what it refused")

    def _contents(self) -> Mapping[str, bytes]:
        """Tell the bytes of all data and index files."""
        paths = [p for kind in ("data", "index") for p in self._folder.glob(f"topics/*/*_{kind}")]
        return {str(path): path.read_bytes() for path in paths}

    def _expect(self, is_true: bool, otherwise: str) -> None:  # noqa: FBT001 - a claim
        self._trial.expect(is_true=is_true, otherwise=otherwise)


def _is_refused(folder: Path) -> bool:
    """Tell whether a store of ours does not open."""
    try:
        Store.open(folder).close()
    except (SegmentLocked, StoreLocked):
        return True
    return False


def _without_empty(stored: Stored) -> Stored:
    return {topic: records for topic, records in stored.items() if records}
