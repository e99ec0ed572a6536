"""Frames of queues: to bytes and back, and bytes that are none."""

import contextlib

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.cluster.batch import Batch
from poe.cluster.frames import (
    WHOLE,
    Again,
    Back,
    Difference,
    Digest,
    Held,
    Known,
    News,
    Paused,
    Proof,
    Prove,
    QueueFrame,
    Release,
    Store,
    Stored,
    Summary,
    decode,
    encode,
)
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue_record import GroupRecord, QueueRecord
from poe.errors import OptionError, RemoteProtocolError

A, B = NodeRef(b"a" * 8, 7), NodeRef(b"b" * 8, 1 << 50)
STREAM = StreamId(*A)
QUEUE = QueueRecord(b"jobs", 2, created_us=5, created_by=b"a" * 8)
GROUP = GroupRecord(b"jobs", "work", {"lease_s": 3.0}, 6, b"b" * 8)
RANGES = ((1, 5), (6, 90))
KNOWN = Known(
    "work", STREAM, RANGES, ((A, RANGES), (B, ((0, 1),))), (Again("member lost", A, B, 9, RANGES),)
)
STORE = Store(b"jobs", QUEUE, STREAM, Batch.encode([b"x", b"yy"], 3, 7), (A, B), is_copy=False)
NEWS = News(b"jobs", 3, 4, 5, (Held(STREAM, RANGES, ()),), (KNOWN,), (GROUP,))
FRAMES: list[QueueFrame] = [
    STORE,
    Store(b"jobs", QUEUE, STREAM, Batch.encode([b"x"] * 30, 3, 7), (), is_copy=True),
    Stored(b"jobs", STREAM, 3, 8, "full"),
    News(b"jobs", 3, WHOLE, 0, (), (), ()),
    NEWS,
    Digest(
        b"jobs", 3, 4, (Summary("work", STREAM, 1 << 63),), (GROUP,), ((A.id, 6),), is_answer=True
    ),
    Difference(b"jobs", is_held_asked=True, known=(("work", STREAM),)),
    Prove(b"jobs", STREAM, 3, 8, 1 << 63),
    Proof(b"jobs", STREAM, 3, 8, 1 << 63, None),
    Proof(b"jobs", STREAM, 3, 8, 0, 5),
]  # fmt: skip
each_frame = pytest.mark.parametrize(
    "frame", FRAMES, ids=[f"{number}-{type(each).__name__}" for number, each in enumerate(FRAMES)]
)


@each_frame
def test_a_frame_goes_to_bytes_and_back(frame):
    assert decode(encode(frame)) == frame


@each_frame
def test_a_frame_that_is_cut_off_or_goes_on_is_refused(frame):
    body = encode(frame)
    for end in range(0, len(body), max(1, len(body) // 40)):
        with pytest.raises(RemoteProtocolError):
            decode(body[:end])
    with pytest.raises(RemoteProtocolError):
        decode(body + b"\0")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 64 - 1) | st.floats() | st.binary(max_size=9)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=12,
)  # fmt: skip


@given(st.data(), st.sampled_from(FRAMES), JUNK)
def test_a_frame_with_anything_in_one_place_is_taken_or_refused(data, frame, junk):
    fields = msgpack.unpackb(encode(frame))

    def places(value, path=()):
        yield path
        if isinstance(value, list):
            for number, each in enumerate(value):
                yield from places(each, (*path, number))

    path = data.draw(st.sampled_from(list(places(fields))))
    body = fields
    if path:
        *way, at = path
        inner = fields
        for step in way:
            inner = inner[step]
        inner[at] = junk
    else:
        body = junk
    try:
        decoded = decode(msgpack.packb(body))
    except RemoteProtocolError:
        return
    assert decode(encode(decoded)) == decoded


@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_taken_or_refused(body):
    with contextlib.suppress(RemoteProtocolError):
        decode(body)


def test_ranges_that_overlap_or_fall_are_refused():
    for ends in (
        [5, 1],
        [1, 1],
        [1, 5, 4, 9],
        [1, 5, 6],
        [-1, 5],
        [1, 1 << 60],
        [1.0, 2],
        [True, 2],
    ):
        body = msgpack.unpackb(encode(NEWS))
        body[5][0][1] = ends
        with pytest.raises(RemoteProtocolError):
            decode(msgpack.packb(body))


AFTER_ALL_TIME = 1 << 56


@pytest.mark.parametrize(
    "frame",
    [
        STORE._replace(record=QUEUE._replace(name=b"others")),
        STORE._replace(holders=(A,) * 1001),
        STORE._replace(record=QUEUE._replace(created_us=AFTER_ALL_TIME)),
        STORE._replace(record=QUEUE._replace(deleted_us=AFTER_ALL_TIME)),
        NEWS._replace(groups=(GROUP._replace(created_us=AFTER_ALL_TIME),)),
        NEWS._replace(groups=(GROUP._replace(deleted_us=AFTER_ALL_TIME),)),
        Paused(b"jobs", "work", AFTER_ALL_TIME, is_paused=True),
        Release(b"jobs", "work", (Back(1, 0, 5, 1, None, AFTER_ALL_TIME, "why"),)),
    ],
    ids=[
        "another queue's record", "too many holders", "queue made", "queue deleted", "group made",
        "group deleted", "paused", "handed back",
    ],
)  # fmt: skip
def test_what_no_node_would_say_is_refused(frame):
    with pytest.raises(RemoteProtocolError):
        decode(encode(frame))


def test_a_queue_is_not_made_behind_the_end_of_time():
    last = QUEUE.deleted(AFTER_ALL_TIME)
    last.check()
    assert last.deleted_us == AFTER_ALL_TIME - 1
    with pytest.raises(OptionError):
        last._replace(created_us=last.deleted_us + 1, deleted_us=0).check()
