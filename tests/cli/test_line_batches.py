"""Lines from a stream: the bytes between newlines, however the stream is cut into pieces."""

import os
import signal
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.cli.interrupt import Interrupt
from poe.cli.line_batches import LineBatches


def lines_of(content: bytes, pieces=None, **options):
    """Feed the pieces one by one through a pipe; return the lines and the reader."""
    receiver, sender = os.pipe()
    batches = LineBatches(receiver, Interrupt(), **options)
    found = []
    try:
        for piece in pieces or [content]:
            os.write(sender, piece)
            for batch in batches.burst():
                found += batch
        os.close(sender)
        while not batches.is_at_end:
            for batch in batches.burst():
                found += batch
    finally:
        os.close(receiver)
    return found, batches


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a\r", b"b\r"]),
        (b"a\rb\x0b\x0c\x85\xe2\x80\xa8c\n", [b"a\rb\x0b\x0c\x85\xe2\x80\xa8c"]),
        (b"\0\n\xff\n", [b"\0", b"\xff"]),
    ],
)
def test_a_line_ends_with_a_newline_and_nothing_else(content, lines):
    found, batches = lines_of(content)
    assert found == lines
    assert (batches.sent_count, batches.read_bytes) == (len(lines), len(content))


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=9))
def test_pieces_make_no_difference(pieces):
    content = b"".join(pieces)
    kept, _ = lines_of(content, pieces, keep_ends=True)
    assert b"".join(kept) == content
    assert all(line.find(b"\n") in {-1, len(line) - 1} for line in kept)
    skipped, _ = lines_of(content, pieces, skip_empty=True)
    assert skipped == [line for line in content.split(b"\n") if line]


def test_an_empty_line_ends_the_lines_and_is_named():
    found, batches = lines_of(b"a\nb\n\nc\n")
    assert found == [b"a", b"b"]
    assert batches.empty_line_number == 3


def test_a_line_longer_than_a_read_is_one_line(tmp_path):
    content = b"x" * 1_000_000 + b"\nshort\n"
    path = tmp_path / "long"
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        batches = LineBatches(descriptor, Interrupt())
        assert [line for batch in batches.burst() for line in batch] == [
            content[:1_000_000],
            b"short",
        ]
    finally:
        os.close(descriptor)


def test_a_line_that_no_request_holds_is_given_up_early_and_not_kept_to_its_end(monkeypatch):
    """As of a file that has no lines at all, which filled the memory."""
    monkeypatch.setattr("poe.cli.line_batches.FRAME_MAX", 1000)
    found, batches = lines_of(b"", [b"a\n", *[b"x" * 600] * 9])
    assert found == [b"a", b"x" * 1200]
    assert (batches.is_at_end, batches.read_bytes) == (True, 1202)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_lines_and_drops_the_unfinished_one(number):
    receiver, sender = os.pipe()
    os.write(sender, b"a\nunfin")
    try:
        with Interrupt() as interrupt:
            batches = LineBatches(receiver, interrupt)
            assert list(batches.burst()) == [[b"a"]]
            sender_of_it = threading.Timer(
                0.05, signal.pthread_kill, (threading.main_thread().ident, number)
            )
            sender_of_it.start()
            assert list(batches.burst()) == []
            sender_of_it.join()
            assert interrupt.number == number
            assert batches.is_at_end
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
    finally:
        os.close(receiver)
        os.close(sender)
