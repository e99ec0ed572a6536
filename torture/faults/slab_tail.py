"""A reader follows a writer of the slab log, and looks after every byte that reaches the files.

It is one reader from the first byte to the last, so that whatever it consumes wrongly is missed or
comes twice.
"""

from collections.abc import Iterator

from poe.errors import OptionError
from poe.storage.slab_log import Reader
from torture.checker import Journal
from torture.layers.crash_state import apply
from torture.layers.memory import MemoryFiles
from torture.layers.recorder import Event, Recorder
from torture.scenario import Run, Trial
from torture.slab_workload import make_puts, write_puts


def play(run: Run) -> None:
    """Record two writers in each trial, one after the other, and play them byte by byte."""
    run.each(_trial)


def _trial(trial: Trial) -> None:
    random = trial.random
    recorder = Recorder(MemoryFiles())
    messages: list[bytes] = []
    for _ in range(2):
        puts = make_puts(random, Journal(), 100, random.choice([20, 200]))
        messages += [put.messages[0] for put in puts]
        write_puts(recorder.files, puts, recorder.ack).close()
    shown = MemoryFiles()
    reader: Reader | None = None
    found: list[bytes] = []
    acked_count = 0
    for event in _bytewise(recorder.events):
        apply(shown, event)
        acked_count += event.kind == "ack"
        if reader is None:
            reader = _reader(shown)
        if reader is not None:
            found += reader
        trial.note(looks=1)
        if not acked_count <= len(found) or found != messages[: len(found)]:
            trial.failures.append(f"{len(found)} messages at {event}, {acked_count} acknowledged")
            return


def _bytewise(events: list[Event]) -> Iterator[Event]:
    """Take writes apart into bytes."""
    for event in events:
        if event.kind != "write":
            yield event
        for at, byte in enumerate(event.data if event.kind == "write" else b""):
            yield Event("write", event.path, bytes([byte]), event.offset + at)


def _reader(files: MemoryFiles) -> Reader | None:
    try:
        return Reader(files)
    except OptionError:
        return None  # not even a first slab was made
