"""A folder that is not the one that was meant, or that no lock can guard, is left as it is."""

import errno
import shutil
import subprocess
from pathlib import Path

import pytest

from poe.errors import OptionError
from poe.storage import RealFiles, Store, StoreOptions, read_store_id
from poe.storage.file_system import NETWORK_FILE_SYSTEMS
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW, names_in, read_all

SOME_ID = "0123456789abcdef" * 2


def make_store(base):
    """Make a store with a message, and tell its id."""
    store = Store.open(base)
    store.create_segment(b"t", NOW).append([b"x"], NOW)
    store.close()
    return read_store_id(RealFiles.at(base))


def mounted(kind, folder, *options):
    """Mount a file system over a folder for a test, where root runs it."""
    command = ["mount", "-t", kind, *options, "poe", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"{kind} cannot be mounted here")


@pytest.mark.parametrize("kind", sorted(NETWORK_FILE_SYSTEMS))
def test_a_network_file_system_is_refused_unless_allowed(tmp_path, kind):
    files = FaultyFiles(RealFiles.at(tmp_path))
    files.kind = kind
    with pytest.raises(OptionError, match=f"this is {kind}.*allow_network_file_system") as caught:
        Store.open(files)
    assert caught.value.key == "dir"
    assert names_in(tmp_path) == []
    Store.open(files, store_options=StoreOptions(allow_network_file_system=True)).close()


@pytest.mark.parametrize(
    "kind", ["", "ext4", "xfs", "tmpfs", "overlay", "9p", "virtiofs", "fuseblk", "fuse.mergerfs"]
)
def test_local_disks_and_what_containers_have_are_not_refused(tmp_path, kind):
    files = FaultyFiles(RealFiles.at(tmp_path))
    files.kind = kind
    Store.open(files).close()


def test_the_type_of_a_real_file_system_is_told(disk):
    assert RealFiles.at(disk.folder).file_system() == "tmpfs"
    assert (
        RealFiles.at(Path(__file__).parent).file_system()
        not in {"", "tmpfs"} | NETWORK_FILE_SYSTEMS
    )
    lower, upper, work, merged = (disk.folder / name for name in ("l", "u", "w", "m"))
    for folder in (lower, upper, work, merged):
        folder.mkdir()
    mounted("overlay", merged, "-o", f"lowerdir={lower},upperdir={upper},workdir={work}")
    try:
        assert RealFiles.at(merged).file_system() == "overlay"
        assert make_store(merged) is not None
    finally:
        subprocess.run(["umount", "--lazy", str(merged)], check=True)


def test_the_store_that_is_expected_is_opened(tmp_path):
    store_id = make_store(tmp_path)
    store = Store.open(tmp_path, store_options=StoreOptions(store_id=store_id))
    assert [message for _, message in read_all(store.topics[b"t"][0])] == [b"x"]
    store.close()
    assert read_store_id(RealFiles.at(tmp_path)) == store_id


def test_another_store_is_refused_and_named(tmp_path):
    store_id = make_store(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(OptionError, match=f"use {store_id} for the store in {tmp_path}") as caught:
        Store.open(tmp_path, store_options=StoreOptions(store_id=SOME_ID))
    assert caught.value.key == "store_id"
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("kind", ["missing", "empty", "without its meta", "with a damaged meta"])
def test_no_new_store_is_made_where_one_is_expected(tmp_path, kind):
    base = tmp_path / "a/b"
    store_id = SOME_ID
    if kind != "missing":
        base.mkdir(parents=True)
    if kind.startswith("with"):
        store_id = make_store(base)
        (base / "store.meta").write_bytes(b"" if "damaged" in kind else b"?" * 100)
    if kind == "without its meta":
        (base / "store.meta").unlink()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OptionError, match="is its disk mounted"):
        Store.open(base, store_options=StoreOptions(store_id=store_id))
    assert sorted(tmp_path.rglob("*")) == before


def test_an_unmounted_disk_is_not_taken_for_an_empty_store(tmp_path):
    """As when the mount at the start of the machine has failed."""
    mounted("tmpfs", tmp_path)
    try:
        store_id = make_store(tmp_path)
        asked = StoreOptions(store_id=store_id)
        Store.open(tmp_path, store_options=asked).close()
        subprocess.run(["umount", str(tmp_path)], check=True)
        with pytest.raises(OptionError, match="is its disk mounted"):
            Store.open(tmp_path, store_options=asked)
        assert names_in(tmp_path) == []
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=False, capture_output=True)


@pytest.mark.parametrize("text", ["", "x", SOME_ID[1:], SOME_ID + "0", SOME_ID.upper()])
def test_what_is_no_id_is_refused(text):
    with pytest.raises(OptionError, match="store_id"):
        StoreOptions(store_id=text)


def test_the_id_of_a_new_store_survives_a_power_cut(tmp_path, monkeypatch):
    """Or a store that is expected would not be found any more."""
    files = FaultyFiles(RealFiles.at(tmp_path))
    synced: list[str] = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    Store.open(files)
    assert synced == ["", ""]  # for the file, then for the folder of topics


def test_an_id_that_is_not_durable_is_not_there(tmp_path):
    files = FaultyFiles(RealFiles.at(tmp_path))
    files.fail(0, errno.EIO, "sync", is_for_ever=True)
    Store.open(files)
    assert files.failed_count == 1
    assert read_store_id(files) is None


def test_a_disk_without_room_for_the_name_of_the_owner_is_served_from(tmp_path, caplog):
    make_store(tmp_path)
    files = FaultyFiles(RealFiles.at(tmp_path))
    files.fail(0, errno.ENOSPC, "write_at", is_for_ever=True)
    store = Store.open(files)
    assert "does not tell who holds it" in caplog.text
    assert [message for _, message in read_all(store.topics[b"t"][0])] == [b"x"]
    files.heal()
    store.close()


def tree_of(base):
    """All that lies below a folder, with what is in it."""
    return {
        str(path.relative_to(base)): path.read_bytes() if path.is_file() else None
        for path in base.rglob("*")
    }


FOREIGN = {
    "a program's folder": ["package.json", "src/main.js"],
    "a file in the place of topics": ["topics"],
    "topics of another program": ["topics/index.html", "index.html"],
    "topics of another program alone": ["topics/index.html"],
    "files of another program in topics": ["topics/physics/index.html"],
    "folders of another program in topics": ["topics/physics/drafts/index.html"],
    "files in topics whose names are almost segments'": ["topics/news/01_data", "news"],
    "a folder in the place of store.lock": ["store.lock/x"],
    "segments that are not below topics": ["news/1361043504873813_data"],
}


@pytest.mark.parametrize("paths", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_folder_of_others_is_refused_unless_it_is_adopted(tmp_path, paths):
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("theirs")
    before = tree_of(tmp_path)
    with pytest.raises(OptionError, match=r"holds .* set adopt_folder to make a store") as caught:
        Store.open(tmp_path)
    assert caught.value.key == "dir"
    assert tree_of(tmp_path) == before


def test_the_names_that_were_found_are_told_a_few_of_them(tmp_path):
    for name in ("a", "b", "c", "d", "e"):
        (tmp_path / name).touch()
    with pytest.raises(OptionError, match=r"this one holds 'a', 'b', 'c' and 2 more; or set adopt"):
        Store.open(tmp_path)


def test_a_folder_is_adopted_once(tmp_path):
    (tmp_path / "package.json").write_text("theirs")
    Store.open(tmp_path, store_options=StoreOptions(adopt_folder=True)).close()
    Store.open(tmp_path).close()
    assert (tmp_path / "package.json").read_text() == "theirs"


@pytest.mark.parametrize(
    "path",
    [
        "lost+found/x",
        ".git/config",
        ".hidden",
        "poe.toml",
        "store.lock",
        "store.reserve",
        "store.meta_new",
        "quarantine/x",
        "store.meta",
    ],
)
def test_what_stands_in_an_empty_or_interrupted_folder_is_no_obstacle(tmp_path, path):
    (tmp_path / "topics" / "begun").mkdir(parents=True)
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
    Store.open(tmp_path).close()


@pytest.mark.parametrize("lost", ["store.meta", None])
def test_a_store_is_opened_whatever_lies_beside_it(tmp_path, lost):
    make_store(tmp_path)
    if lost:
        (tmp_path / lost).unlink()
    else:
        shutil.rmtree(tmp_path / "topics")
    (tmp_path / "backup.sh").touch()
    (tmp_path / "topics").mkdir(exist_ok=True)
    (tmp_path / "topics" / "README").touch()
    store = Store.open(tmp_path)
    assert list(store.topics) == ([b"t"] if lost else [])
    store.close()


def test_a_folder_of_the_original_is_opened_with_other_files_beside_it(tmp_path):
    folder = tmp_path / "topics" / "the_topic"
    folder.mkdir(parents=True)
    for kind in ("data", "index"):
        (folder / f"1361043504873813_{kind}").touch()
    (tmp_path / "rel").mkdir()
    (tmp_path / "vm.args").touch()
    Store.open(tmp_path).close()
