"""A base folder that was removed, renamed or replaced is noticed; meanwhile puts are refused."""

import shutil

import pytest

from poe.errors import StoreGone, StoreLocked
from poe.storage import RealFiles, Store
from poe.storage.store.folder_watch import LOCK_FILE
from tests.storage.segments import NOW


def remove(base):
    shutil.rmtree(base)


def rename(base):
    base.rename(base.with_name("elsewhere"))


def replace(base):
    rename(base)
    base.mkdir()


def replace_by_a_store(base):
    rename(base)
    Store.open(base).close()


def replace_by_a_file(base):
    shutil.rmtree(base)
    base.write_bytes(b"")


def empty(base):
    for path in base.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def rename_the_parent(base):
    base.parent.rename(base.parent.with_name("parent-elsewhere"))


WAYS = [remove, rename, replace, replace_by_a_store, replace_by_a_file, empty, rename_the_parent]


@pytest.fixture
def base(tmp_path):
    return tmp_path / "parent/base"


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_that_is_gone_is_noticed_by_the_next_look(base, way, caplog):
    store = Store.open(base)
    store.create_segment(b"t", NOW).append([b"m"], NOW)
    store.space.look(0.0)
    store.space.check("t", 0.0)
    way(base)
    for now_s in (0.1, 0.2, 5.0):
        store.space.look(now_s)
        assert store.space.is_refusing
        with pytest.raises(StoreGone, match="removed, renamed or replaced"):
            store.space.check("t", now_s)
    assert "not the one that this server works on" in store.health()["refusal"]
    assert caplog.text.count("puts are refused: folder") == 1


def test_with_the_folder_back_puts_are_taken_again(base, caplog):
    store = Store.open(base)
    rename(base)
    store.space.look(0.0)
    assert store.space.is_refusing
    base.with_name("elsewhere").rename(base)
    store.space.check("t", 0.1)
    assert not store.space.is_refusing
    assert store.health()["refusal"] == ""
    assert "puts are accepted again" in caplog.text


def test_a_relative_folder_is_there_wherever_the_program_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store.open(type(tmp_path)("base"))
    monkeypatch.chdir("/")
    store.space.look(0.0)
    assert not store.space.is_refusing


def test_a_folder_behind_a_link_is_there(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    store = Store.open(tmp_path / "link")
    store.space.look(0.0)
    assert not store.space.is_refusing
    (tmp_path / "link").unlink()
    store.space.look(1.0)
    assert store.space.is_refusing


def test_a_closed_store_holds_no_lock(base):
    store = Store.open(base)
    with pytest.raises(StoreLocked):
        Store.open(base)
    store.close()
    Store.open(base).close()


def test_the_lock_is_the_file_that_is_looked_for(base):
    files = RealFiles.at(base)
    lock = files.lock(LOCK_FILE)
    assert files.is_in_place(LOCK_FILE, lock)
    (base / LOCK_FILE).replace(base / "other")
    assert not files.is_in_place(LOCK_FILE, lock)
    (base / LOCK_FILE).touch()
    assert not files.is_in_place(LOCK_FILE, lock)
