"""Room in reserve is given up once, when the disk is full, and else it is there."""

import errno

import pytest

from poe.errors import StorageFull, WriteFailed
from poe.storage import RealFiles, Store, StoreOptions
from poe.storage.store import reserve
from poe.storage.store.reserve import RESERVE_FILE, Reserve
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW, names_in, read_all


@pytest.fixture
def files(tmp_path):
    return FaultyFiles(RealFiles.at(tmp_path))


class Failing:
    """Fails so many times, then is done."""

    def __init__(self, count, error):
        self.count = count
        self.error = error

    def __call__(self):
        if self.count:
            self.count -= 1
            raise self.error
        return "done"


@pytest.mark.parametrize(("min_free", "size"), [(16_000, 1000), (1 << 30, 8 << 20)])
def test_it_takes_a_part_of_what_is_to_stay_free_and_8_mib_at_most(
    files, min_free, size, monkeypatch, reserve_max_bytes
):
    monkeypatch.setattr(reserve, "_BYTES_MAX", reserve_max_bytes)
    Reserve(files, min_free).make()
    assert files.open(RESERVE_FILE, "r").size() == size


def test_without_a_limit_there_is_none(files, tmp_path):
    Reserve(files, 0).make()
    assert names_in(tmp_path) == []


def test_a_disk_without_room_for_it_is_left_alone(files, tmp_path):
    files.fail(0, errno.ENOSPC, "allocate")
    Reserve(files, 16_000).make()
    assert names_in(tmp_path) == []


def test_it_is_given_up_once_and_only_for_want_of_room(files, tmp_path):
    full = StorageFull("t", "full")
    reserve = Reserve(files, 16_000)
    with pytest.raises(StorageFull):
        reserve.use(Failing(1, full))
    reserve.make()
    assert reserve.use(Failing(0, full)) == "done"
    with pytest.raises(WriteFailed):
        reserve.use(Failing(1, WriteFailed("t", "broken")))
    assert names_in(tmp_path) == [RESERVE_FILE]
    assert reserve.use(Failing(1, full)) == "done"
    assert names_in(tmp_path) == []
    reserve.make()
    with pytest.raises(StorageFull):
        reserve.use(Failing(2, full))


def test_a_store_that_is_closed_leaves_none(files, tmp_path):
    store = Store.open(files)
    store.reserve.make()
    store.create_segment(b"t", NOW).append([b"x"], NOW)
    files.fail(0, errno.ENOSPC, "write_at")  # of the index, which waits
    store.close()
    assert len(names_in(tmp_path / "topics/t")) == 3  # no lock
    assert RESERVE_FILE not in names_in(tmp_path)


def test_a_topic_that_needs_room_for_its_recovery_gets_it(files, tmp_path):
    store = Store.open(files)
    store.reserve.make()
    store.create_segment(b"t", NOW).append([b"x"], NOW)
    del store
    files.fail(2, errno.ENOSPC, "write_at")  # behind the lock and the event of the start
    store = Store.open(files, store_options=StoreOptions(min_free=16_000))
    assert files.failed_count == 1
    assert [message for _, message in read_all(store.topics[b"t"][0])] == [b"x"]
    assert store.failed == {}
