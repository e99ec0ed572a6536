"""Copies against a list of messages."""

from hypothesis import given
from hypothesis import strategies as st

from poe.cluster.batch import Batch
from poe.cluster.identity import StreamId
from poe.cluster.queue.copies import Copies
from poe.storage.formats.record import decode_records

STREAM = StreamId(b"a" * 8, 1)
BATCHES = []
after = 0
for number in range(12):
    first = after + 1 + number % 3
    size = 3 if number % 2 else 0
    messages = [b"%d." % at * (size or at % 5 + 1) for at in range(10 + number)]
    BATCHES.append(Batch.encode(messages, after, first))
    after = BATCHES[-1].last
END = after


def messages_of(copies, **limits):
    """Return what is found from the begin to the end, and see that each find keeps its limits."""
    found, at = [], 0
    limit, bytes_max = limits.get("limit", 1 << 30), limits.get("bytes_max", 1 << 30)
    while (each := copies.find(STREAM, at, END, limit, bytes_max)) is not None:
        got = decode_records(each.records)
        assert 0 < len(got) == each.count <= limit
        assert len(each.records) <= bytes_max or each.count == 1
        assert at <= each.after < got[0][0] <= got[-1][0] == each.last
        assert copies.held(STREAM).holds(each.after, each.last)
        assert len(each.entries) == 12 * each.count
        found += got
        at = each.last
    return found


RANGE = st.tuples(st.integers(0, END - 1), st.integers(1, 60)).map(lambda x: (x[0], sum(x)))
STEPS = st.lists(
    st.tuples(st.just("add"), st.integers(0, len(BATCHES) - 1)) | st.tuples(st.just("drop"), RANGE),
    max_size=30,
)


@given(STEPS, st.integers(1, 40), st.integers(1, 600))
def test_what_is_held_is_found_and_nothing_else(steps, limit, bytes_max):
    copies = Copies()
    there: dict[int, bytes] = {}
    for what, value in steps:
        if what == "add":
            copies.add(STREAM, BATCHES[value])
            there.update(decode_records(BATCHES[value].records))
        else:
            copies.drop(STREAM, *value)
            there = {at: each for at, each in there.items() if not value[0] < at <= value[1]}
    assert messages_of(copies) == sorted(there.items())
    assert messages_of(copies, limit=limit, bytes_max=bytes_max) == sorted(there.items())
    assert copies.messages_count == len(there)
    assert (copies.bytes_count == 0) == (not there)
    held = {p for low, last in copies.held(STREAM) for p in range(low + 1, last + 1)}
    assert there.keys() <= held


def test_what_is_dropped_one_by_one_from_the_front_gives_its_memory_back():
    copies = Copies()
    for batch in BATCHES:
        copies.add(STREAM, batch)
    full = copies.bytes_count
    for pointer in range(END // 2):
        copies.drop(STREAM, pointer, pointer + 1)
    assert copies.bytes_count < 0.7 * full
    copies.drop(STREAM, 0, END)
    assert (copies.bytes_count, copies.messages_count, copies.streams()) == (0, 0, [])


def test_a_place_is_never_given_twice_though_all_is_dropped():
    copies = Copies()
    assert copies.place(STREAM, 50) == (0, 50)
    copies.add(STREAM, Batch.encode([b"x"] * 5, 0, 50))
    copies.drop(STREAM, 0, 54)
    assert copies.place(STREAM, 50) == (54, 55)


def test_the_oldest_is_that_of_all_streams():
    copies, other = Copies(), StreamId(b"b" * 8, 1)
    assert copies.oldest() is None
    copies.add(STREAM, Batch.encode([b"x"], 0, 50))
    copies.add(other, Batch.encode([b"x"], 0, 40))
    stream, _ = copies.oldest() or (None, None)
    assert stream == other
