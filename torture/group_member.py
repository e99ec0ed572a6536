"""A member of a work queue, as a process of its own that is killed, stopped and woken up too late.

Run as a program: `python -m torture.group_member PORT_FILE JOURNAL`. It notes each step in its
journal before or behind it: `got ASKED_S TIME_S NAME …`, `done ASKED_S TIME_S NAME …`.
"""

import os
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from poe import protocol
from poe.errors import PoeError
from poe.protocol import Done, Lease, LeaseRequest, Socket
from poe.record import RECORD_HEADER_BYTES

GROUP, TOPIC = "workers", b"jobs"
LIMIT = 10
LEASE_S = 1.0
_WAIT_S = 0.2
_BYTES_MAX = 1 << 20
_OPTIONS = {"session_s": 1.0, "lease_s": LEASE_S, "attempts_max": 1000, "retry_s": 0.0}


def main() -> None:
    """Work until somebody ends the process."""
    port_file, journal = Path(sys.argv[1]), Path(sys.argv[2])
    notes = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        try:
            with protocol.socket("127.0.0.1", int(port_file.read_text()), timeout_s=5.0) as socket:
                _work(socket, notes)
        except PoeError:  # the node is gone, or has forgotten this member
            time.sleep(0.02)


def _work(socket: Socket, notes: int) -> None:
    member = os.urandom(16)
    named = {"group": GROUP, "mode": "shared", "topics": [TOPIC], "options": _OPTIONS}
    socket.control("group_join", member=member, **named)
    lease, names, asked_s = Lease(), [b""], 0.0
    while True:
        done = [Done(lease.id)] if lease.id else []
        begun_s = time.monotonic()
        request = LeaseRequest(GROUP, member, LIMIT, _BYTES_MAX, _WAIT_S, done)
        reply = socket.lease(request)
        if lease.id and lease.id not in reply.lease.lost:
            _note(notes, "done", asked_s, names)
        lease, asked_s = reply.lease, begun_s
        starts, data = reply.records.starts.tolist(), reply.records.data
        names = [bytes(data[begin + RECORD_HEADER_BYTES : end]) for begin, end in pairwise(starts)]
        if lease.id:
            _note(notes, "got", asked_s, names)


def _note(notes: int, what: str, asked_s: float, names: Sequence[bytes]) -> None:
    line = f"{what} {asked_s:.6f} {time.monotonic():.6f} {b' '.join(names).decode()}\n"
    os.write(notes, line.encode())


if __name__ == "__main__":
    main()
