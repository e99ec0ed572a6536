"""What is found for one lease serves the next ones, as long as the files are there."""

import gc

import pytest

from poe.broker.coordinator.look_ahead import LookAhead
from poe.broker.groups.failures import NONE_YET
from poe.broker.groups.lease import Sought
from poe.broker.groups.returned import Returned
from poe.errors import CorruptRecord
from poe.storage import POINTER_MAX, SegmentOptions, Store, decode_records

NOW = 1_700_000_000_000_000
MEMBER = b"m" * 16


@pytest.fixture
def segment(tmp_path):
    store = Store.open(tmp_path)
    segment = store.create_segment(b"t", NOW)
    segment.append([b"%d" % number for number in range(2000)], NOW)
    segment.flush()
    yield segment
    store.close()


def want(after, limit, bytes_max=1 << 20, returned=None):
    last = POINTER_MAX if returned is None else returned.last
    return Sought(MEMBER, b"t", after, last, limit, bytes_max, returned)


class Reader:
    """Answers what is asked of the segment, and counts the questions."""

    def __init__(self, segment):
        self.segment = segment
        self.ahead = LookAhead()
        self.questions_count = 0

    def find(self, wanted):
        found = self.ahead.take(wanted)
        if found is None:
            asked = self.ahead.question(wanted)
            self.questions_count += 1
            place = asked.pointer, asked.last, asked.limit, asked.bytes_max
            found = self.segment.read_range(*place)
            found = found and self.ahead.share(wanted, found)
        return found


@pytest.mark.parametrize("limit", [1, 7, 100, 512, 600])
@pytest.mark.parametrize("bytes_max", [1, 100, 1 << 20])
def test_leases_follow_one_another_as_if_each_were_looked_for(segment, limit, bytes_max):
    reader, after, messages = Reader(segment), 0, []
    while (found := reader.find(want(after, limit, bytes_max))) is not None:
        alone = segment.read_range(after, POINTER_MAX, limit, bytes_max)
        is_short = found.records.record_count < alone.records.record_count
        assert not is_short
        assert found._replace(records=None) == alone._replace(records=None)
        assert found.records[1:6] == alone.records[1:6]
        records = list(decode_records(found.records.read()))
        assert found.records.last_pointer == records[-1][0]
        messages += [bytes(message) for _, message in records]
        after = found.records.last_pointer
    assert messages == [b"%d" % number for number in range(2000)]
    if limit == 1:
        assert reader.questions_count == -(-2000 // 1024) + 1


def test_what_is_found_is_enough_for_a_number_of_leases(segment):
    reader = Reader(segment)
    assert LookAhead.question(want(0, 100)).limit == 1000
    found = reader.find(want(0, 100))
    while reader.questions_count == 1:
        after = found.records.last_pointer
        found = reader.find(want(after, 100))
    assert found.ordinal == 1000


def test_who_asks_for_many_messages_of_few_bytes_has_no_more_than_these_found(segment):
    reader = Reader(segment)
    found = segment.read_range(0, POINTER_MAX, 2000, 100)
    assert LookAhead.question(want(0, 2000, 100)).bytes_max == 100
    assert reader.find(want(0, 2000, 100)) == found
    reader.find(want(found.records.last_pointer, 2000, 100))
    assert reader.questions_count == 2


def test_who_comes_from_elsewhere_is_not_served_with_what_was_found(segment):
    reader = Reader(segment)
    reader.find(want(0, 10))
    assert reader.find(want(NOW + 99, 10)).ordinal == 100
    assert reader.find(want(0, 10)).ordinal == 0
    assert reader.questions_count == 3


def test_what_was_returned_is_looked_for_up_to_its_end(segment):
    reader = Reader(segment)
    reader.find(want(0, 10))
    returned = Returned(b"t", NOW + 9, NOW + 12, NONE_YET)
    found = reader.find(want(NOW + 9, 10, returned=returned))
    assert found.records.record_count == 3
    assert reader.questions_count == 2
    assert reader.find(want(NOW + 9, 10)).ordinal == 10
    assert reader.questions_count == 2


def test_a_file_that_nobody_reads_any_more_is_not_kept_open(segment):
    reader = Reader(segment)
    reader.find(want(0, 10))
    gc.disable()
    try:
        segment.hibernate()
        assert reader.ahead.take(want(NOW + 9, 10)) is None
    finally:
        gc.enable()
    assert reader.find(want(NOW + 9, 10)).ordinal == 10


def test_new_messages_are_found_before_a_lease_is_cut_short(segment):
    reader, after = Reader(segment), 0
    for _ in range(19):
        after = reader.find(want(after, 101)).records.last_pointer
    segment.append([b"new"] * 100, NOW)
    segment.flush()
    assert reader.find(want(after, 101)).records.record_count == 101


def test_what_is_compared_at_each_read_is_looked_for_at_each_lease(tmp_path):
    store = Store.open(tmp_path)
    store.create_segment(b"t", NOW).append([b"%d" % number for number in range(2000)], NOW)
    store.close()
    store = Store.open(tmp_path, SegmentOptions(verify="always"))
    reader = Reader(store.topics[b"t"][0])
    after = reader.find(want(0, 10)).records.last_pointer
    after = reader.find(want(after, 10)).records.last_pointer
    (path,) = (tmp_path / "topics" / "t").glob("*_data")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptRecord):
        reader.find(want(after, 10))
    store.close()
