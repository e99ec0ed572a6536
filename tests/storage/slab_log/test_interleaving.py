"""A writer, or another program, may come between any two calls that a reader makes to the disk."""

import contextlib
from pathlib import Path

import pytest

from poe.storage import RealFiles
from poe.storage.slab_log import OutOfBounds, Reader, Writer, expire
from tests.storage.faulty_files import FaultyFiles
from tests.storage.slab_log.logs import messages, record, write_foreign, write_log

CALLS_MAX = 200


class InterruptedFiles(FaultyFiles):
    """Runs a function before the Nth call."""

    def __init__(self, path: Path, nth, interrupt):
        super().__init__(RealFiles.existing(path))
        self.calls_left = nth
        self.interrupt = interrupt

    def must_fail(self, operation):
        self.calls_left -= 1
        if self.calls_left == -1:
            self.interrupt()
        return False


def closed(path):
    write_log(path, [messages(5)], slab_size_hint=100)


def closed_and_empty(path):
    write_log(path, [])


def foreign(path):
    write_foreign(path, messages(5))


def reopen_and_write(path):
    """Stay open: what is read must not depend on how the writer ends."""
    writer = Writer(path, slab_size_hint=100)
    for each in messages(9, 5):
        writer.write(each)
        writer.flush()


def let_original_write(path):
    with max(path.glob("*.slab")).open("ab") as slab:
        slab.write(b"".join(map(record, messages(9, 5))))


@pytest.mark.parametrize("come", [reopen_and_write, let_original_write])
@pytest.mark.parametrize("begin", [closed, closed_and_empty, foreign])
def test_a_reader_misses_nothing_whenever_somebody_comes(tmp_path, begin, come):
    for nth in range(CALLS_MAX):
        path = tmp_path / f"{nth}"
        begin(path)
        before = list(Reader(path))
        layer = InterruptedFiles(path, nth, lambda path=path: come(path))
        reader = Reader(layer)
        found = list(reader)
        assert found == (before + messages(9, 5))[: len(found)]
        assert len(found) >= len(before)
        if layer.calls_left >= 0:
            break
        found += list(reader)
        assert found == before + messages(9, 5)
    assert 10 < nth < CALLS_MAX - 1


@pytest.mark.slow
def test_a_reader_is_told_whenever_retention_comes(tmp_path):
    for nth in range(CALLS_MAX):
        path = tmp_path / f"{nth}"
        write_log(path, [messages(60)], slab_size_hint=100)
        layer = InterruptedFiles(path, nth, lambda path=path: expire(path, bytes_max=0))
        found = []
        with contextlib.suppress(OutOfBounds):
            for each in Reader(layer):
                found.append(each)  # noqa: PERF402 - kept when the iteration fails
        start = messages(60).index(found[0]) if found else 0
        assert found == messages(60)[start : start + len(found)]
        if layer.calls_left >= 0:
            break
    assert 10 < nth < CALLS_MAX - 1


@pytest.mark.slow
def test_a_writer_does_not_notice_whenever_retention_comes(tmp_path):
    for nth in range(CALLS_MAX):
        path = tmp_path / f"{nth}"
        write_log(path, [messages(5)], slab_size_hint=100)
        layer = InterruptedFiles(path, nth, lambda path=path: expire(path, bytes_max=0))
        with Writer(layer, slab_size_hint=100) as writer:
            for each in messages(20, 5):
                writer.write(each)
            writer.sync()
        found = list(Reader(path))
        assert found
        assert found == messages(25)[-len(found) :]
        if layer.calls_left >= 0:
            break
    assert 50 < nth < CALLS_MAX - 1
