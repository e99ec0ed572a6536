"""What nodes ask each other about groups is read as it was sent, or told as wrong."""

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest

from poe.broker.requests.log_groups import PING, Question
from poe.errors import RemoteProtocolError

QUESTION = Question(
    "lease", "g", "shared", (b"t",), {"attempts": 3}, False, True, (b"t",), {}, b"x"
)
FIELDS = [1, *QUESTION]


def test_a_question_is_read_as_it_was_sent():
    assert Question.decode(QUESTION.encode()) == QUESTION


WRONG = {0: 2, 1: 5, 2: b"g", 3: [], 4: ["t"], 6: 1, 7: None, 8: 7, 10: "x"}


@pytest.mark.parametrize("place", WRONG)
def test_one_with_a_wrong_field_is_told(place):
    fields = [*FIELDS]
    fields[place] = WRONG[place]
    with pytest.raises(RemoteProtocolError):
        Question.decode(PING + msgpack.packb(fields))


@pytest.mark.parametrize("content", [b"", b"\xc0", b"\x90", b"\x91\x01", b"\x01"])
def test_what_is_cut_off_or_something_else_is_told(content):
    with pytest.raises(RemoteProtocolError):
        Question.decode(PING + content)
