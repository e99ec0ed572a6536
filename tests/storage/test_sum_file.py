"""No bit of a sum file changes unnoticed, and no entry of another place passes for one's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from poe.errors import FormatNotSupported
from poe.storage.formats.hashed import FILE_HEADER_BYTES, FileHeader
from poe.storage.formats.sum_file import SUM_MAGIC, SUMS, SumEntry, chain_seed

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
ENTRIES = st.lists(st.builds(SumEntry, U64, U64, U32, U32, U64, U64), min_size=1, max_size=6)
HEADER = FileHeader(bytes(range(16)), 1_700_000_000_000_000, 5)


def flipped(content, bit):
    content = bytearray(content)
    content[bit // 8] ^= 1 << bit % 8
    return bytes(content)


@given(entries=ENTRIES, seed=U64)
def test_entries_are_decoded_as_they_were_encoded(entries, seed):
    content, chain = SUMS.encode(entries, seed)
    assert len(content) == SUMS.size_bytes * len(entries)
    found = SUMS.decode(content + b"torn", seed)
    assert [each.entry for each in found] == entries
    assert all(each.is_chained for each in found)
    assert found[-1].chain == chain


@given(entries=ENTRIES, seed=U64, data=st.data())
def test_a_flipped_bit_is_noticed_and_the_entries_behind_are_found(entries, seed, data):
    content, _ = SUMS.encode(entries, seed)
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    found = SUMS.decode(flipped(content, bit), seed)
    at, bit_of_entry = divmod(bit, SUMS.size_bytes * 8)
    # The chain is the last field; the next entry is chained to what stands there.
    unsound = {at, at + 1} if bit_of_entry >= 40 * 8 else {at}
    assert [each.is_chained for each in found] == [n not in unsound for n in range(len(entries))]


@given(entries=ENTRIES, seed=U64)
def test_lost_doubled_and_swapped_entries_are_noticed(entries, seed):
    content, _ = SUMS.encode([*entries, entries[0]._replace(end=7), entries[-1]], seed)
    size = SUMS.size_bytes
    first, second, rest = content[:size], content[size : 2 * size], content[2 * size :]
    for changed in (second + rest, first + rest, first + first + second + rest, second + first):
        assert not all(each.is_chained for each in SUMS.decode(changed, seed))


def test_the_first_entry_belongs_to_one_segment_of_one_topic_of_one_store():
    seeds = {
        chain_seed(store_id, topic, timestamp)
        for store_id in (bytes(16), b"x" * 16)
        for topic in (b"t", b"u")
        for timestamp in (1, 2)
    }
    assert len(seeds) == 8


def test_every_flipped_bit_of_a_header_is_noticed():
    content = HEADER.encode(SUM_MAGIC)
    assert len(content) == FILE_HEADER_BYTES
    assert FileHeader.decode(content + b"entries", "t/1_sum", SUM_MAGIC) == HEADER
    for bit in range(FILE_HEADER_BYTES * 8):
        assert FileHeader.decode(flipped(content, bit), "t/1_sum", SUM_MAGIC) is None


@pytest.mark.parametrize("size", range(FILE_HEADER_BYTES))
def test_a_header_that_was_cut_is_noticed(size):
    assert FileHeader.decode(HEADER.encode(SUM_MAGIC)[:size], "t/1_sum", SUM_MAGIC) is None


def resigned(offset, byte):
    """A header of another version, whose hash is right."""
    content = bytearray(HEADER.encode(SUM_MAGIC)[:-8])
    content[offset] = byte
    return bytes(content) + xxh3_64_digest(bytes(content))


@pytest.mark.parametrize(("offset", "byte"), [(9, 2), (11, 1), (12, 2)])
def test_a_newer_version_a_required_feature_and_another_hash_are_refused(offset, byte):
    with pytest.raises(FormatNotSupported, match="t/1_sum"):
        FileHeader.decode(resigned(offset, byte), "t/1_sum", SUM_MAGIC)


def test_a_feature_that_may_be_ignored_is_ignored():
    assert FileHeader.decode(resigned(10, 1), "t/1_sum", SUM_MAGIC) == HEADER
