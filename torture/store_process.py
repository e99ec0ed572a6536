"""A process that only stores, as a victim: forked, so that it lives for milliseconds."""

import os
import pickle
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from poe.storage import Files, RealFiles, SegmentOptions
from torture.checker import Put, Stored
from torture.layers.watched import Before, WatchedFiles
from torture.workload import Ack, Acked, Step, do_steps, open_store, read_store

_ACKED = struct.Struct("=IQ")
_FAILED = 70


def run_steps(
    folder: Path,
    steps: list[Step],
    ack: Ack,
    now_us: int,
    before: Before,
    boot_id: str | None = None,
) -> bool:
    """Have a process do steps; note what it has acknowledged, and tell whether it was killed.

    It tells `before` of operations on files, which may end it.
    """

    def work(files: Files, acked: Acked) -> None:
        do_steps(files, steps, ack, acked, now_us).close()

    return run_acking(folder, [step.put for step in steps], before, work, boot_id)


def run_acking(
    folder: Path,
    puts: Sequence[Put | None],
    before: Before,
    work: Callable[[Files, Acked], object],
    boot_id: str | None = None,
) -> bool:
    """Have a process do anything with puts; otherwise as `run_steps`."""
    numbers = {id(put): number for number, put in enumerate(puts)}
    read_end, write_end = os.pipe()

    def acked(put: Put, pointer: int) -> None:
        os.write(write_end, _ACKED.pack(numbers[id(put)], pointer))

    pid = _fork(folder, before, lambda files: work(files, acked), boot_id)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        told = pipe.read()
    for number, pointer in _ACKED.iter_unpack(told):
        put = puts[number]
        assert put is not None
        put.pointer = pointer
    return _was_killed(pid)


def recover_and_read(folder: Path, ack: Ack, boot_id: str | None = None) -> Stored:
    """Have a process recover a folder, read all of it, and stop cleanly."""
    read_end, write_end = os.pipe()

    def work(files: Files) -> None:
        store = open_store(files, SegmentOptions(ack=ack))
        with os.fdopen(write_end, "wb") as pipe:
            pickle.dump(read_store(store), pipe)
        store.close()

    pid = _fork(folder, lambda _: None, work, boot_id)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        told = pipe.read()
    _was_killed(pid)
    stored: Stored = pickle.loads(told)
    return stored


def run_alone(folder: Path, before: Before, work: Callable[[Files], object]) -> bool:
    """Have a process do anything with a folder; tell whether it was killed."""
    return _was_killed(_fork(folder, before, work))


def _fork(
    folder: Path, before: Before, work: Callable[[Files], object], boot_id: str | None = None
) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        files = RealFiles.at(folder)
        files.boot_id = boot_id or files.boot_id
        work(WatchedFiles(files, before))
    except BaseException:  # noqa: BLE001 - nothing may pass the fork
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(_FAILED)
    os._exit(0)


def _was_killed(pid: int) -> bool:
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return True
    if os.WEXITSTATUS(status):
        raise RuntimeError("the victim failed by itself; its traceback is above")
    return False
