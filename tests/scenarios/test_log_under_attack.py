"""What clients do to the log: few lines, no payload, no character that a terminal obeys."""

import re

import pytest

from poe.errors import InvalidTopicName
from poe.protocol import ControlRequest, PutRequest
from poe.protocol.frames import PUT_REQUEST
from tests.cli.processes import Server
from tests.scenarios.clients import RawClient, frame, put_body

pytestmark = pytest.mark.slow

SECRET = b"TOP-SECRET"
ATTACKS = [
    b"\xff\xff\xff\xff" + SECRET,
    frame(77, SECRET),
    frame(PUT_REQUEST, put_body(b"t", [SECRET]) + b"x"),
    frame(ControlRequest.MESSAGE_TYPE, b"\xc1" + SECRET),
    ControlRequest("\x1b[2J" + SECRET.decode(), 1, {}).encode(),
    PutRequest(b"\x1b[2J\r\nERROR forged line " + SECRET, [SECRET]).encode(),
]


@pytest.fixture
def server(tmp_path):
    with Server(tmp_path / "data") as server:
        yield server


def log_of(server):
    """End the server, and tell the lines of its log."""
    code, _, stderr = server.end()
    assert code == 0
    return stderr.decode().split("\n")


def test_thousands_of_bad_frames_leave_few_lines_and_no_payload(server):
    for attack in ATTACKS * 200:
        with RawClient(("127.0.0.1", server.port)) as raw:
            raw.send(attack)
            raw.error()
    lines = log_of(server)
    assert not [line for line in lines if SECRET.decode() in line]
    assert not [line for line in lines if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", line)]
    assert len(lines) < 100


def test_what_is_stored_and_what_is_refused_is_not_logged(server):
    with RawClient(("127.0.0.1", server.port)) as raw:
        for number in range(100):
            raw.write(b"t%d" % (number % 5), [SECRET])
            with pytest.raises(InvalidTopicName):
                raw.write(b"../" + SECRET, [SECRET])
    lines = log_of(server)
    assert not [line for line in lines if SECRET.decode() in line]
    assert len(lines) < 20
