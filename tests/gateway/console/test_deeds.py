"""What the console notes of those who change something; clients may give any names."""

import logging

from poe.gateway.console.deeds import Deeds


def test_no_name_makes_a_line_of_its_own(caplog):
    deeds = Deeds()
    with caplog.at_level(logging.INFO, "poe.gateway.console"):
        deeds.note(
            None, "127.0.0.1", "pauses group", "a\n'ann' at ::1: deletes topic t\x1b[2K\u2028é"
        )
    (line,) = caplog.messages
    assert line == (
        "the one-time token at 127.0.0.1: pauses group "
        r"a\n'ann' at ::1: deletes topic t\x1b[2K\u2028é"
    )
    assert deeds.newest(None)[0]["target"] in line
