"""Log lines: one per record, whatever the record says."""

import logging

from poe.cli.log import LineFormatter


def formatted(message, exc_info=None):
    record = logging.LogRecord("poe", logging.INFO, "f.py", 1, message, None, exc_info)
    return LineFormatter("%(message)s").format(record)


def test_control_characters_are_escaped_and_text_is_kept():
    assert formatted("a\nb\x1b[2J\x85\udcff ä €") == "a\\nb\\x1b[2J\\x85\\udcff ä €"


def test_a_traceback_keeps_its_lines():
    error = ValueError("broken")
    lines = formatted("oops", (ValueError, error, None)).splitlines()
    assert lines == ["oops", "ValueError: broken"]
