"""Who a node is survives its restarts, and no two of its lives are the same."""

import errno

import pytest
from xxhash import xxh3_64_digest

from poe.cluster.identity import IDENTITY_FILE, NodeRef, take_identity
from poe.cluster.node_file import write_node_file
from poe.errors import CorruptIdentity, StorageError
from poe.storage import RealFiles
from tests.storage.faulty_files import FaultyFiles


def draw(count):
    return bytes(range(1, count + 1))


@pytest.fixture
def files(tmp_path):
    return FaultyFiles(RealFiles.at(tmp_path))


def test_the_first_start_draws_an_id_and_the_next_ones_keep_it(files):
    first = take_identity(files, 1000, draw)
    second = take_identity(files, 2000, lambda count: b"\xff" * count)
    assert first == NodeRef(b"\1\2\3\4\5\6\7\10", 1000)
    assert second == NodeRef(first.id, 2000)


def test_an_epoch_rises_though_the_clock_goes_back(files):
    take_identity(files, 5000, draw)
    assert take_identity(files, 10, draw).epoch == 5001
    assert take_identity(files, 10, draw).epoch == 5002


@pytest.mark.parametrize("operation", ["open", "write_at", "sync", "rename", "sync_folder"])
def test_no_epoch_is_used_that_is_not_durable(files, operation):
    take_identity(files, 1000, draw)
    files.fail(0, errno.EIO, operation, is_for_ever=True)
    with pytest.raises(StorageError, match=r"node\.identity"):
        take_identity(files, 2000, draw)
    files.heal()
    assert take_identity(files, 1500, draw).epoch >= 1500


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"poe-node", b"another file" * 5, b"poe-node" + bytes(60)],
    ids=["empty", "short", "magic", "foreign", "hash"],
)
def test_a_wrong_file_is_told_by_its_path_and_kept(tmp_path, content):
    (tmp_path / IDENTITY_FILE).write_bytes(content)
    with pytest.raises(CorruptIdentity, match=r"node\.identity cannot be used"):
        take_identity(RealFiles.at(tmp_path), 1000, draw)
    assert (tmp_path / IDENTITY_FILE).read_bytes() == content


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([2, bytes(8), 7], "version 2"),
        ([1, bytes(7), 7], "no id and epoch"),
        ([1, bytes(8), -1], "no id and epoch"),
        ({"id": 1}, "no id and epoch"),
    ],
    ids=["newer", "short-id", "negative", "map"],
)
def test_a_file_of_a_newer_version_is_refused(files, value, why):
    write_node_file(files, IDENTITY_FILE, b"poe-node", value)
    with pytest.raises(CorruptIdentity, match=why):
        take_identity(files, 1000, draw)


def test_each_flipped_bit_is_seen(tmp_path):
    files = RealFiles.at(tmp_path)
    take_identity(files, 1 << 50, draw)
    good = (tmp_path / IDENTITY_FILE).read_bytes()
    for at in range(len(good) * 8):
        bad = bytearray(good)
        bad[at // 8] ^= 1 << at % 8
        (tmp_path / IDENTITY_FILE).write_bytes(bad)
        with pytest.raises(CorruptIdentity):
            take_identity(files, 1 << 51, draw)


def test_what_a_file_of_a_right_hash_holds_is_told_where_it_cannot_be_read(files):
    content = b"poe-node" + b"\xc1"
    files.open(IDENTITY_FILE, "w+").write_at(content + xxh3_64_digest(content), 0)
    with pytest.raises(CorruptIdentity, match="what it holds cannot be read"):
        take_identity(files, 1000, draw)
