"""What is wrong with credentials changes no step of their refusal, so that no time tells it.

Every call, of Python's functions and of those in C, is recorded; `bench/secret_timing.py` measures.
"""

import base64
import gc
import sys
import zlib

import pytest

from poe.broker.access.authentication import Authentication, Channel
from poe.broker.access.secrets import Secrets
from poe.errors import AuthenticationFailed
from poe.security.entry import BEARER
from poe.security.scram import SCRAM, ScramKeys
from poe.security.token import make_token
from poe.security.users import TokenEntry, User, Users

KEYS = ScramKeys.of_password("pencil")
NEW_KEYS = ScramKeys.of_password("crayon", KEYS.iterations, KEYS.salt)
TOKEN, DIGEST = make_token("one")
CHANNEL = Channel("127.0.0.1", is_local=True)


class Node:
    """What a node knows."""

    users = Users(
        [
            User(name="alice", scram=(KEYS,), tokens=(TokenEntry("one", DIGEST),)),
            User(name="bobby", scram=(KEYS, NEW_KEYS)),
            User(name="carol"),
        ]
    )
    secrets = Secrets(b"s" * 32, make_token("admin")[1])


def calls_of(action):
    """The names of all functions that are called, in their order."""
    names = []

    def note(frame, event, argument):
        if event == "call":
            names.append(frame.f_code.co_qualname)
        elif event == "c_call":
            names.append(argument.__qualname__)

    with pytest.raises(AuthenticationFailed):
        recorded(action, note)
    return names


def recorded(action, note):
    gc.disable()  # what is told of a collection is no step of ours
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()


def show_password(user):
    authentication = Authentication(Node(), CHANNEL)
    told = authentication.take(SCRAM, b"n,,n=%b,r=client" % user.encode(), 0.0).data or b""
    final = b"c=biws,%b,p=%b" % (told.partition(b",")[0], base64.b64encode(bytes(32)))
    authentication.take(SCRAM, final, 0.0)


def show_token(place):
    """Show a whole token that differs in one character."""
    head = bytearray(TOKEN.rpartition("_")[0].encode())
    head[place] = ord("A" if head[place] != ord("A") else "B")
    Authentication(Node(), CHANNEL).take(BEARER, b"%b_%08x" % (bytes(head), zlib.crc32(head)), 0.0)


@pytest.mark.parametrize("user", ["nobdy", "bobby", "carol"])
def test_a_wrong_password_takes_the_same_steps_whoever_there_is(user):
    expected = calls_of(lambda: show_password("alice"))
    assert expected.count("compare_digest") == 3
    assert calls_of(lambda: show_password(user)) == expected


@pytest.mark.parametrize("place", [len("poe_"), len("poe_one_"), -1])
def test_a_wrong_token_takes_the_same_steps_wherever_it_is_wrong(place):
    expected = calls_of(lambda: show_token(-2))
    assert "compare_digest" in "".join(expected)
    assert calls_of(lambda: show_token(place)) == expected
