"""Log lines: one per record, whatever the record says."""

import contextlib
import logging
import os

from poe.cli.log import LineFormatter, PatientHandler


def formatted(message, exc_info=None):
    record = logging.LogRecord("poe", logging.INFO, "f.py", 1, message, None, exc_info)
    return LineFormatter("%(message)s").format(record)


def test_control_characters_are_escaped_and_text_is_kept():
    assert formatted("a\nb\x1b[2J\x85\udcff ä €") == "a\\nb\\x1b[2J\\x85\\udcff ä €"


def test_a_traceback_keeps_its_lines():
    error = ValueError("broken")
    lines = formatted("oops", (ValueError, error, None)).splitlines()
    assert lines == ["oops", "ValueError: broken"]


def record_of(message):
    return logging.LogRecord("poe", logging.INFO, "f.py", 1, message, None, None)


@contextlib.contextmanager
def pipe():
    """Yield a handler and what reads its lines."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb"), os.fdopen(writing, "w", encoding="utf-8") as stream:
        yield PatientHandler(stream, patience_s=0.0), lambda: os.read(reading, 1 << 20)


def fill(descriptor):
    os.set_blocking(descriptor, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(descriptor, b"x" * 4096)
    os.set_blocking(descriptor, True)


def test_a_log_that_nobody_reads_keeps_nobody_waiting():
    """Who logged waited for the reader, and with the event loop the whole server."""
    with pipe() as (handler, read):
        handler.emit(record_of("begin"))
        fill(handler.stream.fileno())
        for number in range(3):
            handler.emit(record_of(f"unread {number}"))
        assert read().startswith(b"begin\nxx")
        handler.emit(record_of("again"))
        told = b"lines left out, which nobody has read: 3"
        assert read().splitlines() == [b"", told, b"again"]


def test_a_line_that_is_longer_than_a_pipe_keeps_nobody_waiting():
    with pipe() as (handler, read):
        handler.emit(record_of("\u20ac" * (1 << 20)))
        assert set(read().decode(errors="replace")) <= {"\u20ac", "\ufffd"}
        handler.emit(record_of("\u20ac" * 5000))
        assert read().decode().splitlines() == [
            "",
            "lines left out, which nobody has read: 1",
            "\u20ac" * 5000,
        ]
