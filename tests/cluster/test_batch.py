"""Batches: parts of them, and what is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.cluster.batch import Batch
from poe.errors import RemoteProtocolError
from poe.storage.formats.record import decode_entry, decode_records

MIXED = [b"x" * size for size in (5, 1, 300, 7, 7, 40, 1)]
EVEN = [b"%04d" % number for number in range(30)]


def batch_of(messages, after=100, first=110):
    return Batch.encode(messages, after, first)


def contents(batch):
    return decode_records(batch.records)


@pytest.mark.parametrize("messages", [EVEN, MIXED, [b"one"]], ids=["even", "mixed", "one"])
def test_a_batch_holds_its_messages_and_is_sound(messages):
    batch = batch_of(messages)
    batch.check()
    assert contents(batch) == list(enumerate(messages, 110))
    assert (batch.after, batch.first, batch.last) == (100, 110, 109 + len(messages))


@given(st.sampled_from([EVEN, MIXED]), st.integers(95, 150), st.integers(0, 45))
def test_a_part_has_the_messages_of_its_range(messages, after, length):
    batch, last = batch_of(messages), after + length
    part = batch.part(after, last)
    expected = [each for each in contents(batch) if after < each[0] <= last]
    if not expected:
        assert part is None
        return
    part.check()
    assert contents(part) == expected
    assert after <= part.after or part.after == 100
    assert part.last == expected[-1][0]


@given(
    st.sampled_from([EVEN, MIXED]), st.integers(95, 150), st.integers(1, 40), st.integers(1, 500)
)
def test_a_head_is_within_its_limits_but_for_one_message(messages, after, limit, bytes_max):
    batch = batch_of(messages)
    head = batch.head(after, 1 << 40, limit, bytes_max)
    expected = [each for each in contents(batch) if after < each[0]]
    if not expected:
        assert head is None
        return
    got = contents(head)
    assert got == expected[: len(got)]
    assert len(got) <= limit
    assert len(head.records) <= bytes_max or len(got) == 1
    if len(got) < min(limit, len(expected)):
        assert len(head.records) + 11 + len(expected[len(got)][1]) > bytes_max


@pytest.mark.parametrize("messages", [EVEN, MIXED], ids=["even", "mixed"])
def test_entries_tell_where_each_record_begins(messages):
    batch = batch_of(messages)
    entries = batch.entries(1000)
    found = [decode_entry(entries[at : at + 12]) for at in range(0, len(entries), 12)]
    offset, expected = 1000, []
    for pointer, message in contents(batch):
        expected.append((pointer, offset))
        offset += 11 + len(message)
    assert found == expected


@pytest.mark.parametrize("messages", [EVEN, MIXED], ids=["even", "mixed"])
def test_a_batch_that_lies_is_refused(messages):
    batch = batch_of(messages)
    records = bytearray(batch.records)
    records[3] ^= 1
    lies = [
        batch._replace(after=110),
        batch._replace(last=batch.last + 1),
        batch._replace(messages_count=batch.messages_count + 1),
        batch._replace(messages_count=1),
        batch._replace(messages_count=1 << 50),
        batch._replace(records=bytes(records)),
        batch._replace(records=batch.records[:-1]),
        batch._replace(records=b""),
        batch._replace(starts=b"\0\0\0\0" * batch.messages_count),
        batch._replace(starts=b"\xff" * 4 * batch.messages_count),
        batch._replace(starts=batch.starts + b"\0"),
        batch._replace(last=1 << 60),
    ]
    for lie in lies:
        with pytest.raises(RemoteProtocolError):
            lie.check()
