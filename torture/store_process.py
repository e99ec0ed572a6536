"""A process that only stores, as a victim: forked, so that it lives for milliseconds."""

import os
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from poe.storage import Files, RealFiles
from torture.checker import Put
from torture.layers.watched import Before, WatchedFiles
from torture.workload import Ack, Step, do_steps

_ACKED = struct.Struct("=IQ")
_FAILED = 70


def run_steps(folder: Path, steps: list[Step], ack: Ack, now_us: int, before: Before) -> bool:
    """Have a process do steps; note what it has acknowledged, and tell whether it was killed.

    It is told of file operations by `before`, which may end it.
    """
    numbers = {id(step.put): number for number, step in enumerate(steps)}
    read_end, write_end = os.pipe()

    def work(files: Files) -> None:
        def acked(put: Put, pointer: int) -> None:
            os.write(write_end, _ACKED.pack(numbers[id(put)], pointer))

        do_steps(files, steps, ack, acked, now_us).close()

    pid = _fork(folder, before, work)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        told = pipe.read()
    for number, pointer in _ACKED.iter_unpack(told):
        put = steps[number].put
        assert put is not None
        put.pointer = pointer
    return _was_killed(pid)


def run_alone(folder: Path, before: Before, work: Callable[[Files], object]) -> bool:
    """Have a process do anything with a folder; tell whether it was killed."""
    return _was_killed(_fork(folder, before, work))


def _fork(folder: Path, before: Before, work: Callable[[Files], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work(WatchedFiles(RealFiles.at(folder), before))
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
