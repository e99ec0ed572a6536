"""Connections that end or are reset at each byte of a request: a put is whole or absent.

A reset takes what the server has not received yet from it, an end does not.
"""

import contextlib
import socket as tcp
import struct
from itertools import product

from poe.protocol import PutRequest
from torture.checker import Journal, Sender
from torture.scenario import Run, Trial
from torture.server import Server, read_topics

_TOPIC = b"t"


def play(run: Run) -> None:
    """Send each beginning of some requests in each trial, then close the connection."""
    with Server(run.folder / "data", count_limit=500, check_interval=0.02) as server:
        journal = Journal()

        def once(trial: Trial) -> None:
            sender = Sender(journal, trial.random)
            size = len(PutRequest(_TOPIC, sender.begin(_TOPIC, 3, 30).messages).encode())
            for at, is_reset in product(range(size + 20), (False, True)):
                put = sender.begin(_TOPIC, 3, 30)
                frame = PutRequest(_TOPIC, put.messages).encode()
                with server.connect_raw() as raw, contextlib.suppress(ConnectionError):
                    raw.sendall(frame[:at])
                    if is_reset:  # by a close that has no time to linger
                        raw.setsockopt(tcp.SOL_SOCKET, tcp.SO_LINGER, struct.pack("ii", 1, 0))
                put.is_refused = at < len(frame)
                trial.note(resets=is_reset, ends=not is_reset)
            with server.connect() as client:
                put = sender.begin(_TOPIC)
                put.pointer = client.write(_TOPIC, put.messages)
            trial.failures += journal.judge(read_topics(server))

        run.each(once)
