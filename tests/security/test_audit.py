"""An audit line is one line, whatever a client calls itself, and holds no token."""

import json
import logging

import pytest

from poe.security.audit import TEXT_MAX, audit
from poe.security.token import make_token


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "poe.audit")
    return lambda: [each.getMessage() for each in caplog.records if each.name == "poe.audit"]


def test_an_event_is_a_line_of_json(lines):
    audit("denied", principal="alice", operation="read", topic=b"orders", count=3, peer=None)
    assert [json.loads(each) for each in lines()] == [
        {
            "event": "denied",
            "principal": "alice",
            "operation": "read",
            "topic": "orders",
            "count": 3,
            "peer": None,
        }
    ]


def test_a_name_makes_no_line_of_its_own(lines):
    audit("failed", principal='a\n{"event": "accepted"}', topic=b"\xff\x1b[2J%s")
    (line,) = lines()
    assert line.isprintable()
    assert line.isascii()
    assert json.loads(line)["topic"] == "\\xff\x1b[2J%s"


def test_a_token_in_the_wrong_place_is_hidden(lines):
    token, _ = make_token("one")
    audit("failed", principal=f"x {token} y", topic=token.encode(), names=[token])
    (line,) = lines()
    assert token.split("_", 2)[2] not in line
    assert json.loads(line)["principal"] == "x poe_one_… y"


def test_huge_names_are_cut(lines):
    audit("failed", principal="a" * 10_000, topic=b"b" * 10_000)
    found = json.loads(lines()[0])
    assert len(found["principal"]) == len(found["topic"]) == TEXT_MAX
