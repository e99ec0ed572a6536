"""Loads a server with the Poe socket protocol: poeload in Python, one process per connection.

It serves where no C compiler is, and for messages of mixed sizes. Requests are built before the
clock starts, so that the generator costs little more than its two system calls per write.

usage: python -m bench.load HOST PORT MODE CONNS TOPICS BATCH SIZE SECONDS
       MODE write | read | write-mixed (sizes from 1 to SIZE)
"""

import json
import multiprocessing
import random
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass

FRAME_HEADER = struct.Struct(">IH")
RECORD_SIZE = struct.Struct(">I")
POINTER_REQUEST = 0
PUT_REQUEST = 2
# Distinct frames per connection: enough for varied sizes, few enough to stay in the cache.
FRAMES_MAX = 16
PERCENTILES = (("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999))


@dataclass(frozen=True, slots=True)
class Load:
    """What one run does; the fields are poeload's arguments."""

    host: str
    port: int
    mode: str
    conns: int
    topics: int
    batch: int
    size: int
    seconds: float


@dataclass(slots=True)
class Tally:
    """What one connection did."""

    messages: int
    payload_bytes: int
    empty: int
    latencies_us: list[int]


def run(load: Load) -> dict[str, object]:
    """Load the server from `load.conns` processes and sum up, in the shape of poeload's line."""
    context = multiprocessing.get_context("fork")
    # Signals are for us, who then end the pool.
    with context.Pool(load.conns, _ignore_interrupts) as pool:
        started = time.perf_counter()
        tallies = pool.starmap(_run_connection, [(load, number) for number in range(load.conns)])
        took_s = time.perf_counter() - started
    latencies = sorted(us for tally in tallies for us in tally.latencies_us)
    payload_bytes = sum(tally.payload_bytes for tally in tallies)
    return {
        "mode": load.mode,
        "conns": load.conns,
        "topics": load.topics,
        "batch": load.batch,
        "size": load.size,
        "calls_s": round(len(latencies) / took_s),
        "msgs_s": round(sum(tally.messages for tally in tallies) / took_s),
        "MB_s": round(payload_bytes / took_s / 1e6, 1),
        **{name: latencies[int(len(latencies) * share)] for name, share in PERCENTILES},
        "empty": sum(tally.empty for tally in tallies),
        "errors": 0,
    }


def put_frame(topic: bytes, messages: list[bytes]) -> bytes:
    """Encode a put request without Poe's own code, which is what is being measured."""
    parts = [struct.pack(">I", len(topic)), topic]
    for message in messages:
        parts += (RECORD_SIZE.pack(len(message)), message)
    body = b"".join(parts)
    return FRAME_HEADER.pack(len(body) + 2, PUT_REQUEST) + body


def pointer_frame(topic: bytes, pointer: int, limit: int) -> bytes:
    """Encode a pointer request."""
    body = pointer.to_bytes(7, "big") + struct.pack(">I", limit) + topic
    return FRAME_HEADER.pack(len(body) + 2, POINTER_REQUEST) + body


def connect(host: str, port: int) -> socket.socket:
    """Open a connection that sends each frame at once."""
    connection = socket.create_connection((host, port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exchange(connection: socket.socket, frame: bytes, into: bytearray) -> int:
    """Send a request and receive its reply, type first, in `into`; return the reply's length."""
    connection.sendall(frame)
    header = connection.recv(4, socket.MSG_WAITALL)
    if len(header) < RECORD_SIZE.size:
        msg = "the server closed the connection"
        raise ConnectionError(msg)
    length = RECORD_SIZE.unpack(header)[0]
    if connection.recv_into(into, length, socket.MSG_WAITALL) < length:
        msg = f"the server closed the connection within a frame of {length} bytes"
        raise ConnectionError(msg)
    if int.from_bytes(into[:2], "big") not in {1, 3}:
        msg = f"the server answered {bytes(into[:length])!r}"
        raise ConnectionError(msg)
    return int(length)


def walk(reply: bytearray, length: int) -> tuple[int, int]:
    """Count the records of a data reply; return the count and the last pointer, 0 when empty."""
    offset, count, pointer = 2, 0, 0
    while offset < length:
        size = RECORD_SIZE.unpack_from(reply, offset)[0]
        pointer = int.from_bytes(reply[offset + 4 : offset + 11], "big")
        offset += 4 + size
        count += 1
    return count, pointer


def _run_connection(load: Load, number: int) -> Tally:
    with connect(load.host, load.port) as connection:
        if load.mode == "read":
            return _read(load, connection, random.Random(number))
        return _write(load, connection, random.Random(number))


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _write(load: Load, connection: socket.socket, chance: random.Random) -> Tally:
    frames = []
    for number in range(FRAMES_MAX):
        topic = b"t%d" % (number % load.topics if load.topics < FRAMES_MAX else _any(load, chance))
        mixed = load.mode == "write-mixed"
        sizes = [chance.randint(1, load.size) if mixed else load.size for _ in range(load.batch)]
        frames.append((put_frame(topic, [b"a" * size for size in sizes]), sum(sizes)))
    tally = Tally(0, 0, 0, [])
    reply = bytearray(1024)
    end = time.perf_counter() + load.seconds
    while (started := time.perf_counter()) < end:
        frame, payload_bytes = chance.choice(frames)
        exchange(connection, frame, reply)
        tally.messages += load.batch
        tally.payload_bytes += payload_bytes
        tally.latencies_us.append(int((time.perf_counter() - started) * 1e6))
    return tally


def _read(load: Load, connection: socket.socket, chance: random.Random) -> Tally:
    tally = Tally(0, 0, 0, [])
    pointers: dict[int, int] = {}
    reply = bytearray(1 << 24)
    end = time.perf_counter() + load.seconds
    while (started := time.perf_counter()) < end:
        topic = _any(load, chance)
        frame = pointer_frame(b"t%d" % topic, pointers.get(topic, 0), load.batch)
        length = exchange(connection, frame, reply)
        count, pointers[topic] = walk(reply, length)
        tally.empty += not count
        tally.messages += count
        tally.payload_bytes += length
        tally.latencies_us.append(int((time.perf_counter() - started) * 1e6))
    return tally


def _any(load: Load, chance: random.Random) -> int:
    return chance.randrange(load.topics)


def main() -> None:
    """Run with poeload's arguments and print its line."""
    host, port, mode, conns, topics, batch, size, seconds = sys.argv[1:]
    load = Load(
        host, int(port), mode, int(conns), int(topics), int(batch), int(size), float(seconds)
    )
    print(json.dumps(run(load)))


if __name__ == "__main__":
    main()
