"""Queues between processes: what waits for room, and who sends it."""

import os
import queue
import tracemalloc

import pytest

from poe.thespian.hosted.queue_base import CHUNK_BYTES, PacketQueue
from tests.forks import exit_code_of, fork

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

MESSAGES_COUNT = 2_000
BODY = b"x" * 1_000
LARGE = bytes(10_000_000)


def full_queue() -> PacketQueue:
    """A queue that holds more than fits into its socket."""
    full = PacketQueue()
    for number in range(MESSAGES_COUNT):
        full.put((number, BODY))
    return full


def read_all(packets: PacketQueue) -> list[int]:
    numbers: list[int] = []
    while len(numbers) < MESSAGES_COUNT:
        numbers.append(packets.get(timeout=5.0)[0])
    with pytest.raises(queue.Empty):
        packets.get(block=False)
    return numbers


def test_what_waits_for_room_is_sent_in_order_by_the_next_read():
    assert read_all(full_queue()) == list(range(MESSAGES_COUNT))


def test_what_waits_for_room_is_not_sent_by_a_forked_process_too():
    waiting, other = full_queue(), PacketQueue()
    first = [waiting.get(timeout=5.0)[0]]  # so that there is room
    other.put("flush")
    child = os.fork()
    if child == 0:
        other.get(timeout=5.0)  # sends what waits in this process
        os._exit(0)
    os.waitpid(child, 0)
    while len(first) < MESSAGES_COUNT:
        first.append(waiting.get(timeout=5.0)[0])
    assert first == list(range(MESSAGES_COUNT))


def test_nothing_stays_of_a_message_whose_writer_has_died_in_the_middle():
    packets = PacketQueue()
    # As much of it as there is room for.
    assert exit_code_of(fork(lambda: packets.put(LARGE))) == 0
    packets.put("whole")
    tracemalloc.start()
    assert packets.get(timeout=5.0) == "whole"
    with pytest.raises(queue.Empty):
        packets.get(timeout=0.0)
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 2 * CHUNK_BYTES
