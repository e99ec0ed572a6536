"""No bit of what is hashed changes unnoticed, and nothing of another place passes for one's own."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_digest

from poe.errors import FormatNotSupported
from poe.record import POINTER_MAX
from poe.storage.formats.hashed import (
    FILE_HEADER_BYTES,
    HASH_BYTES,
    ChainedEntries,
    FileHeader,
    seal,
    unseal,
)
from poe.storage.formats.sum_file import SUM_MAGIC, chain_seed

U64 = st.integers(0, 2**64 - 1)
FIELDS = struct.Struct(">QI")
ENTRIES = st.lists(st.tuples(U64, st.integers(0, 2**32 - 1)), min_size=1, max_size=6)
CODECS = st.sampled_from(
    [ChainedEntries(FIELDS, tuple, is_chain_first=is_first) for is_first in (False, True)]
)
HEADER = FileHeader(bytes(range(16)), 1_700_000_000_000_000, 5)
HEAD = struct.Struct(">H")
PIECES = st.lists(st.binary(max_size=9).map(lambda rest: HEAD.pack(len(rest)) + rest), max_size=5)
TIE = b"of this store"


def flipped(content, bit):
    content = bytearray(content)
    content[bit // 8] ^= 1 << bit % 8
    return bytes(content)


@given(codec=CODECS, entries=ENTRIES, chain=U64, seed=U64)
def test_entries_are_decoded_as_they_were_encoded(codec, entries, chain, seed):
    content, last = codec.encode(entries, chain, seed)
    assert len(content) == codec.size_bytes * len(entries)
    found = codec.decode(content + b"torn", chain, seed)
    assert [each.entry for each in found] == entries
    assert all(each.is_chained for each in found)
    assert found[-1].chain == last


@given(codec=CODECS, entries=ENTRIES, chain=U64, data=st.data())
def test_a_flipped_bit_is_noticed_and_the_entries_behind_are_found(codec, entries, chain, data):
    content, _ = codec.encode(entries, chain)
    bit = data.draw(st.integers(0, len(content) * 8 - 1))
    found = codec.decode(flipped(content, bit), chain)
    at, bit_of_entry = divmod(bit, codec.size_bytes * 8)
    # The chain is the last field; the next entry is chained to what stands there.
    unsound = {at, at + 1} if bit_of_entry >= FIELDS.size * 8 else {at}
    assert [each.is_chained for each in found] == [n not in unsound for n in range(len(entries))]


@given(codec=CODECS, entries=ENTRIES, chain=U64)
def test_lost_doubled_and_swapped_entries_are_noticed(codec, entries, chain):
    content, _ = codec.encode([*entries, (7, 7), entries[-1]], chain)
    size = codec.size_bytes
    first, second, rest = content[:size], content[size : 2 * size], content[2 * size :]
    for changed in (second + rest, first + rest, first + first + second + rest, second + first):
        assert not all(each.is_chained for each in codec.decode(changed, chain))


@given(codec=CODECS, entries=ENTRIES, chain=U64)
def test_entries_of_another_seed_are_none(codec, entries, chain):
    content, _ = codec.encode(entries, chain, 1)
    assert not any(each.is_chained for each in codec.decode(content, chain, 2))


def unsealed(content):
    return list(unseal(content, TIE, HEAD, lambda head: HEAD.size + head[0]))


@given(pieces=PIECES, data=st.data())
def test_pieces_are_read_up_to_the_first_that_is_damaged_or_torn(pieces, data):
    content = b"".join(seal(piece, TIE) for piece in pieces)
    assert unsealed(content) == pieces
    ends = [
        sum(len(each) + HASH_BYTES for each in pieces[:stop]) for stop in range(len(pieces) + 1)
    ]
    cut = data.draw(st.integers(0, len(content)))
    whole = [piece for piece, end in zip(pieces, ends[1:], strict=True) if end <= cut]
    assert unsealed(content[:cut]) == whole
    if cut < len(content):
        assert unsealed(flipped(content, cut * 8 + 3)) == whole


def test_pieces_of_another_store_are_none():
    assert unsealed(seal(HEAD.pack(0), b"of another")) == []


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
    assert FileHeader.decode(resigned(10, 2), "t/1_sum", SUM_MAGIC) == HEADER


def test_a_base_that_no_topic_can_reach_is_told_by_nobody():
    for base, told in ((POINTER_MAX, POINTER_MAX), (POINTER_MAX + 1, None)):
        header = replace(HEADER, base=base)
        found = FileHeader.decode(header.encode(SUM_MAGIC), "sum", SUM_MAGIC)
        assert found == replace(header, base=told)
