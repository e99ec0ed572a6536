"""Directories of queues join into the same on all nodes; what comes of other nodes is checked."""

import contextlib

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.cluster import node_frames
from poe.cluster.directory import QUEUES_MAX, Directory
from poe.cluster.members.table import Member
from poe.cluster.queue_record import QueueRecord
from poe.errors import RemoteProtocolError

records = st.builds(
    QueueRecord,
    name=st.sampled_from([b"a", b"b", b"c"]),
    copies=st.integers(1, 3),
    persist=st.booleans(),
    bytes_max=st.just(1 << 20),
    messages_max=st.just(1 << 20),
    on_full=st.just("busy"),
    created_us=st.integers(0, 3),
    created_by=st.sampled_from([b"1" * 8, b"2" * 8]),
    deleted_us=st.integers(0, 4),
)
several = st.lists(records, max_size=8)


@given(several, several, several)
def test_directories_join_into_the_same_in_any_order(a, b, c):
    joined = []
    for order in ((a, b, c), (c, b, a, a), (b, [*c, *a])):
        directory = Directory()
        for each in order:
            directory.join(each)
        joined.append(directory.records())
        assert directory.digest() == Directory(joined[0]).digest()
    assert joined[0] == joined[1] == joined[2]


@given(several, several)
def test_two_nodes_know_the_same_after_each_has_told_what_the_other_lacks(a, b):
    one, other = Directory(a), Directory(b)
    other.join(one.beyond(other.records()))
    one.join(other.beyond(one.records()))
    assert one.records() == other.records()
    assert one.digest() == other.digest()


def test_a_queue_that_was_made_anew_is_told_behind_its_last_deletion():
    first = QueueRecord(b"a", 1, created_us=1)
    over, anew, later = first.deleted(2), first._replace(created_us=3), first._replace(created_us=4)
    directory = Directory([first, over, anew])
    assert directory.as_told(directory.records()) == [over, anew]
    directory.join([later])
    assert directory.as_told([later]) == [over, later]
    assert Directory([first]).join(directory.as_told([later])) == [over, later]
    directory.join([later.deleted(5)])
    assert directory.as_told(directory.records()) == [later.deleted(5)]


def test_a_directory_is_bounded_and_forgets_the_oldest_deletion_first():
    directory = Directory(QueueRecord(b"%d" % each, 1) for each in range(QUEUES_MAX))
    assert not directory.has_room_for(b"new")
    assert directory.has_room_for(b"7")
    assert directory.join([QueueRecord(b"new", 1)]) == []
    directory.join([QueueRecord(b"7", 1, deleted_us=5), QueueRecord(b"8", 1, deleted_us=4)])
    assert directory.has_room_for(b"new")
    assert directory.join([QueueRecord(b"new", 1)])
    assert directory.get(b"8") is None
    assert directory.get(b"7") is not None


@pytest.mark.slow
def test_of_more_deletions_than_there_is_room_for_all_keep_the_last_whoever_heard_of_which():
    times = range(QUEUES_MAX + 9, 0, -1)
    deleted = [QueueRecord(b"%05d" % each, 1, deleted_us=us) for each, us in enumerate(times)]
    one, other = Directory(deleted[:QUEUES_MAX]), Directory(deleted[9:])
    one.join(other.records())
    other.join(one.records())
    assert one.digest() == other.digest() == Directory(deleted[:QUEUES_MAX]).digest()


@given(several, st.booleans())
def test_records_survive_their_frame(told, is_answer):
    frame = node_frames.encode_records(told, is_answer=is_answer)
    assert node_frames.is_of_node(frame)
    assert node_frames.decode(frame) == node_frames.RecordsTold(tuple(told), is_answer)


def test_members_and_digests_survive_their_frames():
    member = Member(b"n" * 8, "joined", 7, "ada", "rack", "h:1")
    frame = node_frames.encode_members([member])
    assert node_frames.is_of_members(frame)
    assert node_frames.decode(frame) == node_frames.MembersTold((member,))
    digest = node_frames.encode_digest(2**63)
    assert node_frames.decode(digest) == node_frames.DirectoryDigest(2**63)


@given(st.binary(max_size=64))
def test_any_bytes_are_a_frame_or_refused(body):
    with contextlib.suppress(RemoteProtocolError):
        node_frames.decode(b"\x92" + body)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.sampled_from([64, 65, 66, 67]), anything, anything)
def test_any_values_are_a_frame_or_refused(kind, value, other):
    for fields in ((kind, value), (kind, value, other)):
        with contextlib.suppress(RemoteProtocolError):
            node_frames.decode(msgpack.packb(fields))


def test_too_many_records_are_refused():
    told = [QueueRecord(b"%d" % each, 1, created_by=b"1" * 8) for each in range(1001)]
    with pytest.raises(RemoteProtocolError, match="1000"):
        node_frames.decode(node_frames.encode_records(told, is_answer=False))
