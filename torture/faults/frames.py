"""Malformed frames by the thousand: no crash, no reply that is none, nothing left behind."""

import contextlib
import socket as tcp
from random import Random

from poe.errors import RemoteProtocolError
from poe.protocol import (
    ControlRequest,
    FrameReader,
    PointerRequest,
    PutId,
    PutRequest,
    SequencedPutRequest,
)
from torture.checker import Journal, Sender
from torture.scenario import Run, Trial
from torture.server import Server, read_all

_FRAMES = 100
_REPLIES = frozenset({1, 3, 6, 17, 18})
_GROWTH_MAX_BYTES = 20 << 20
_KEPT = b"kept"


def play(run: Run) -> None:
    """Send `_FRAMES` broken frames in each trial, each on a connection of its own."""
    with Server(run.folder / "data") as server:
        journal = Journal()
        sender = Sender(journal, Random(run.seed))
        _attack(server, Random(run.seed), count=300)  # what it takes once, it may keep
        rss_bytes = server.rss_bytes()

        def trial_of(trial: Trial) -> None:
            trial.failures += _attack(server, trial.random, count=_FRAMES)
            trial.note(frames=_FRAMES)
            with server.connect() as client:
                put = sender.begin(_KEPT)
                put.pointer = client.write(_KEPT, put.messages)

        run.each(trial_of)
        with server.connect() as client:
            found = journal.judge({_KEPT: read_all(client, _KEPT)})
        grown_bytes = server.rss_bytes() - rss_bytes
        run.measure("grown_bytes", grown_bytes)
        if grown_bytes > _GROWTH_MAX_BYTES + 200 * run.count:
            found.append(f"the server has grown by {grown_bytes} bytes")
        run.count_trial(run.count, found)


def _attack(server: Server, random: Random, count: int) -> list[str]:
    """Send broken frames; tell which replies were none."""
    failures = []
    for _ in range(count):
        sent = _broken(random)
        with server.connect_raw(5.0) as raw:
            # A server that has read enough closes while we are still sending.
            with contextlib.suppress(ConnectionError):
                raw.sendall(sent)
                raw.shutdown(tcp.SHUT_WR)
            reader, received = FrameReader(), b""
            try:
                received = _receive_all(raw)
                _feed(reader, received)
            except (TimeoutError, RemoteProtocolError) as error:
                failures.append(f"{error!r} after {sent[:60]!r}: {received[:60]!r}")
    return failures


def _receive_all(raw: tcp.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := raw.recv(1 << 16):
            received += part
    return received


def _feed(reader: FrameReader, received: bytes) -> None:
    """Expect whole frames of known types.

    Raises:
        RemoteProtocolError: there is something else.
    """
    at = 0
    while at < len(received):
        length = int.from_bytes(received[at : at + 4], "big")
        kind = int.from_bytes(received[at + 4 : at + 6], "big")
        if kind not in _REPLIES or at + 4 + length > len(received):
            raise RemoteProtocolError(f"no frame at {at} of the reply")
        at += 4 + length


def _broken(random: Random) -> bytes:
    """Make up a frame, and break it: by grammar, by bits, or altogether."""
    topic = b"frames"
    frames = [
        PutRequest(topic, [random.randbytes(random.randint(1, 40)) for _ in range(3)]).encode(),
        SequencedPutRequest(topic, [b"one", b"two"], PutId(bytes(16), 0, 0)).encode(),
        PointerRequest(topic, random.randrange(1 << 56), random.randrange(1 << 10)).encode(),
        ControlRequest(random.choice(["info", "wait", "sync", "none"]), 1, {"topic": 5}).encode(),
    ]
    frame = bytearray(random.choice(frames))
    match random.randrange(6):
        case 0:  # any length
            frame[:4] = random.choice([0, 1, 2, 3, 1 << 26, 2**31, 2**32 - 1]).to_bytes(4, "big")
        case 1:  # any type
            frame[4:6] = random.randbytes(2)
        case 2:  # inner lengths that do not add up
            at = random.randrange(6, max(7, len(frame) - 4))
            frame[at : at + 4] = random.choice([0, 255, 2**31, 2**32 - 1]).to_bytes(4, "big")
        case 3:  # cut
            del frame[random.randrange(len(frame)) :]
        case 4:  # bits
            for _ in range(random.randint(1, 8)):
                frame[random.randrange(len(frame))] ^= 1 << random.randrange(8)
        case _:
            frame = bytearray(random.randbytes(random.randrange(200)))
    return bytes(frame)
