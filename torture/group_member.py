"""A member of a group, as a process of its own that is killed, stopped and woken up too late.

Run as a program: `python -m torture.group_member MODE PORT_FILE JOURNAL`. It notes each step in its
journal before or behind it, with times of the clock that all processes share:

    got ASKED_S TIME_S NAME …       it was given messages; it had them to itself when it asked
    done ASKED_S TIME_S NAME …      it was answered that these are done
    owned SINCE_S UNTIL_S UNIT      it was told of a unit, and asked for something that only its
                                    owner gets, and got it
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from poe import protocol
from poe.errors import PoeError
from poe.protocol import Done, IndexedRecords, Lease, LeaseRequest, Socket
from poe.record import RECORD_HEADER_BYTES
from torture.checker import Record

GROUP, TOPIC = "workers", b"jobs"
LIMIT = 10
LEASE_S = 1.0
_WORK_S = 0.003
"""What the work on so many messages takes, so that a fault meets some of it."""
_WAIT_S = 0.2
_IDLE_S = 0.01
_BYTES_MAX = 1 << 20
_SESSION = {"session_s": 1.0}
_OPTIONS = {
    "shared": {**_SESSION, "lease_s": LEASE_S, "attempts_max": 1000, "retry_s": 0.0},
    "ordered": _SESSION,
}


def main() -> None:
    """Work until somebody ends the process."""
    mode, port_file, journal = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    notes = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    work = {"shared": _take_leases, "ordered": _own_partitions}[mode]
    while True:
        try:
            with protocol.socket("127.0.0.1", int(port_file.read_text()), timeout_s=5.0) as socket:
                member = os.urandom(16)
                named = {"mode": mode, "topics": [TOPIC], "options": _OPTIONS[mode]}
                socket.control("group_join", group=GROUP, member=member, **named)
                work(socket, member, notes)
        except PoeError:  # the node is gone, or has forgotten this member
            time.sleep(0.02)


def _take_leases(socket: Socket, member: bytes, notes: int) -> None:
    lease, names, asked_s = Lease(), [b""], 0.0
    while True:
        done = [Done(lease.id)] if lease.id else []
        begun_s = time.monotonic()
        request = LeaseRequest(GROUP, member, LIMIT, _BYTES_MAX, _WAIT_S, done)
        reply = socket.lease(request)
        if lease.id and lease.id not in reply.lease.lost:
            _note(notes, "done", asked_s, names)
        lease, asked_s = reply.lease, begun_s
        names = [name for _, name in records_of(reply.records)]
        if lease.id:
            _note(notes, "got", asked_s, names)
            time.sleep(_WORK_S)


def records_of(records: IndexedRecords) -> list[Record]:
    """Return the messages of a lease, and their pointers."""
    starts, data = records.starts.tolist(), records.data
    messages = [bytes(data[begin + RECORD_HEADER_BYTES : end]) for begin, end in pairwise(starts)]
    return list(zip(records.pointers.tolist(), messages, strict=True))


@dataclass(slots=True)
class _Owned:
    """A partition that is this member's."""

    pointer: int
    """Of the last message that was done."""

    since_s: float


def _own_partitions(socket: Socket, member: bytes, notes: int) -> None:
    def ask(op: str, **arguments: object) -> Any:
        return socket.control(op, group=GROUP, member=member, **arguments)

    owned: dict[bytes, _Owned] = {}
    generation = 0
    while True:
        begun_s = time.monotonic()
        told = ask("group_heartbeat", generation=generation, owned=list(owned))
        generation = told["generation"]
        new = _granted(ask, set(told["keep"]) - owned.keys())
        owned = {unit: new.get(unit) or owned[unit] for unit in told["keep"]}
        has_work = False
        for unit, each in list(owned.items()):
            found = socket.read(unit, each.pointer, LIMIT)
            if not found:
                continue
            has_work = True
            names = [name for _, name in found]
            _note(notes, "got", begun_s, names)
            time.sleep(_WORK_S)
            pointer, asked_s = found[-1][0], time.monotonic()
            if ask("group_commit", generation=generation, positions={unit: pointer}):
                _note(notes, "done", begun_s, names)
                _write(notes, f"owned {each.since_s:.6f} {asked_s:.6f} {unit.decode()}")
                each.pointer = pointer
            else:
                del owned[unit]
        if not has_work:
            time.sleep(_IDLE_S)


def _granted(ask: Callable[..., Any], units: set[bytes]) -> dict[bytes, _Owned]:
    """Return where to go on with units that were granted a moment ago."""
    if not units:
        return {}
    since_s = time.monotonic()
    positions = ask("group_positions")
    return {unit: _Owned((positions[unit] or [0])[0], since_s) for unit in units}


def _note(notes: int, what: str, asked_s: float, names: Sequence[bytes]) -> None:
    _write(notes, f"{what} {asked_s:.6f} {time.monotonic():.6f} {b' '.join(names).decode()}")


def _write(notes: int, line: str) -> None:
    os.write(notes, f"{line}\n".encode())


if __name__ == "__main__":
    main()
