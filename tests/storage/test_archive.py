"""Manifests: what the archive holds, told by whole files that appear at once and last."""

import errno
import json
import os
from pathlib import Path

import pytest

from poe.errors import FormatNotSupported, OptionError, ReadFailed, StorageError
from poe.storage import Archive, ArchivedFile, ArchivedPlace, Manifest, RealFiles, RowGroup
from poe.storage.archive import NEW_FOLDER, file_path, manifest_path
from tests.storage.faulty_files import FaultyFiles

TOPIC = b"a/b"
TIMESTAMP = 1_700_000_000_000_000
DATES = ("2023-11-14", "2023-11-15")
MANIFEST = Manifest.of(
    (
        ArchivedFile(file_path(DATES[0], TIMESTAMP), (RowGroup(5, 7, 3, 30), RowGroup(9, 9, 1, 8))),
        ArchivedFile(file_path(DATES[1], TIMESTAMP), (RowGroup(12, 20, 4, 40),)),
    )
)


def archive_at(folder):
    return Archive(FaultyFiles(RealFiles.at(folder)))


def publish(archive, content=b"parquet"):
    new = [f"{NEW_FOLDER}/{date}" for date in DATES]
    archive.files.make_folder(NEW_FOLDER)
    for path in new:
        archive.files.open(path, "w+").write_at(content, 0)
    archive.publish(TOPIC, TIMESTAMP, MANIFEST, new)


def paths_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def contents(folder):
    return {(folder / "topic=a%2Fb" / file.path).read_bytes() for file in MANIFEST.files}


def test_a_manifest_sums_up_its_row_groups():
    assert (MANIFEST.first, MANIFEST.last, MANIFEST.count, MANIFEST.size_bytes) == (5, 20, 8, 78)


def test_a_manifest_is_read_back_as_it_was_written():
    assert Manifest.decode(MANIFEST.encode(), "path") == MANIFEST


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"version": 1}', b"\xff", b"null"])
def test_what_is_no_manifest_is_refused(content):
    with pytest.raises(ReadFailed, match=r"x\.json: it is no manifest"):
        Manifest.decode(content, "x.json")


def test_each_piece_of_a_manifest_is_refused():
    encoded = MANIFEST.encode()
    for size in range(len(encoded)):
        with pytest.raises(ReadFailed):
            Manifest.decode(encoded[:size], "x.json")


def test_a_manifest_of_a_newer_version_is_refused_as_such():
    newer = json.loads(MANIFEST.encode()) | {"version": 2}
    with pytest.raises(FormatNotSupported, match="version 2"):
        Manifest.decode(json.dumps(newer).encode(), "x.json")


@pytest.mark.parametrize(
    ("extent", "is_covered"),
    [
        ((5, 20, 8), True),
        ((6, 19, 5), True),
        ((4, 20, 8), False),
        ((5, 21, 8), False),
        ((5, 20, 9), False),
    ],
)
def test_a_segment_is_covered_when_all_its_messages_are_archived(extent, is_covered):
    assert MANIFEST.covers(*extent) is is_covered


def test_a_published_segment_is_found_and_nothing_else_is_left(tmp_path):
    archive = archive_at(tmp_path)
    publish(archive)
    assert archive.topics() == [TOPIC]
    assert archive.manifest(TOPIC, TIMESTAMP) == MANIFEST
    assert list(archive.manifests(TOPIC)) == [(TIMESTAMP, MANIFEST)]
    assert paths_in(tmp_path) == [
        f"topic=a%2Fb/_manifest/{TIMESTAMP}.json",
        f"topic=a%2Fb/date=2023-11-14/{TIMESTAMP}.parquet",
        f"topic=a%2Fb/date=2023-11-15/{TIMESTAMP}.parquet",
    ]


def test_manifests_come_oldest_first(tmp_path):
    archive = archive_at(tmp_path)
    publish(archive)
    folder = (tmp_path / manifest_path(TOPIC, 0)).parent
    for timestamp in (99, 100, 1000):
        (folder / f"{timestamp}.json").write_bytes(MANIFEST.encode())
    (folder / "notes.txt").write_text("no manifest")
    assert [timestamp for timestamp, _ in archive.manifests(TOPIC)] == [99, 100, 1000, TIMESTAMP]


def test_of_a_topic_that_is_not_archived_nothing_is_told(tmp_path):
    archive = archive_at(tmp_path)
    assert archive.topics() == []
    assert archive.manifest(TOPIC, TIMESTAMP) is None
    assert list(archive.manifests(TOPIC)) == []


def test_an_archive_that_is_not_there_is_an_error_for_who_reads(tmp_path):
    with pytest.raises(ReadFailed, match="No such file"):
        Archive.existing(tmp_path / "absent")


def test_a_failure_at_any_call_leaves_no_manifest_and_the_next_try_succeeds(tmp_path):
    for nth in range(100):
        folder = tmp_path / str(nth)
        archive = archive_at(folder)
        archive.files.fail(nth, errno.EIO)
        try:
            publish(archive)
        except (StorageError, OSError):
            archive.files.heal()
            if archive.manifest(TOPIC, TIMESTAMP) is not None:
                # Nothing but the sync of its name comes behind it.
                assert contents(folder) == {b"parquet"}
            publish(archive, b"new content")
            assert contents(folder) == {b"new content"}
        else:
            assert nth > 10
            return
        assert archive.manifest(TOPIC, TIMESTAMP) == MANIFEST
    raise AssertionError


class WatchedFiles(FaultyFiles):
    """Notes what is done, in order."""

    def __init__(self, files):
        super().__init__(files)
        self.done = []

    def rename(self, path, new_path):
        super().rename(path, new_path)
        self.done.append(("rename", new_path))

    def sync_folder(self, path):
        super().sync_folder(path)
        self.done.append(("sync", path))

    def check(self, operation):
        super().check(operation)
        if operation == "sync":
            self.done.append(("sync", "file"))


def test_files_and_their_names_are_durable_before_the_manifest_has_its_name(tmp_path):
    files = WatchedFiles(RealFiles.at(tmp_path))
    publish(Archive(files))
    *before, manifest, after = files.done
    topic = "topic=a%2Fb"
    assert manifest == ("rename", manifest_path(TOPIC, TIMESTAMP))
    assert after == ("sync", f"{topic}/_manifest")
    assert before.count(("sync", "file")) == 3
    for date in DATES:
        renamed = before.index(("rename", f"{topic}/{file_path(date, TIMESTAMP)}"))
        assert ("sync", "file") in before[:renamed]
        assert {("sync", ""), ("sync", topic)} <= set(before[:renamed])
        assert before[renamed + 1] == ("sync", f"{topic}/date={date}")


def test_one_archiver_at_a_time_works_on_an_archive(tmp_path):
    lock = archive_at(tmp_path).begin()
    with pytest.raises(OptionError, match="no other archiver works on now"):
        archive_at(tmp_path).begin()
    del lock
    archive_at(tmp_path).begin()


def test_a_folder_that_cannot_be_made_is_told_to_be_the_archive_s(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=r"option 'archive' is .*Not a directory"):
        Archive.at(tmp_path / "file" / "archive")


def test_what_a_killed_archiver_has_left_unfinished_is_removed(tmp_path):
    archive = archive_at(tmp_path)
    archive.begin()
    (tmp_path / NEW_FOLDER / "half.parquet").write_bytes(b"half")
    archive.begin()
    assert paths_in(tmp_path) == ["_lock"]


def test_a_folder_of_others_is_no_archive(tmp_path):
    folder = tmp_path / "archive"
    Archive.check("archive_dir", folder)
    for name in ("topic=t", "_new", "_lock", ".hidden", "lost+found"):
        (folder / name).mkdir(parents=True)
    Archive.check("archive_dir", folder)
    (folder / "report.xlsx").touch()
    told = "this one holds 'report.xlsx'; or set adopt_folder to make an archive beside them"
    with pytest.raises(OptionError, match=told) as caught:
        Archive.check("archive_dir", folder)
    assert caught.value.key == "archive_dir"


class FailingFolder(type(Path())):  # type: ignore[misc]  # the class of this system's paths
    """A folder whose disk, or whose name, does not let anybody list it."""

    error_number = 0

    def iterdir(self):
        raise OSError(self.error_number, os.strerror(self.error_number), str(self))


@pytest.mark.parametrize("error_number", [errno.ESTALE, errno.EIO, errno.ENOTCONN])
def test_an_archive_on_a_dead_disk_is_away_and_no_wrong_option(caplog, error_number):
    folder = FailingFolder("/mnt/archive")
    folder.error_number = error_number
    Archive.check("archive_dir", folder)
    assert f"archive /mnt/archive is away: {os.strerror(error_number)}" in caplog.text


@pytest.mark.parametrize("error_number", [errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG])
def test_a_folder_that_was_named_wrongly_is_a_wrong_option(error_number):
    folder = FailingFolder("/mnt/archive")
    folder.error_number = error_number
    with pytest.raises(OptionError, match=os.strerror(error_number)):
        Archive.check("archive_dir", folder)


# ---- partitions ----------------------------------------------------------------------------------


def test_an_archive_knows_which_topics_are_the_partitions_of_one(tmp_path):
    archive = archive_at(tmp_path)
    archive.files.make_folder(NEW_FOLDER)
    for number in (10, 2, 0):
        archive.note_place(b"a/b-%d" % number, ArchivedPlace(b"a/b", number, envelope=True))
    archive.note_place(b"a/b-7", ArchivedPlace(b"a/b-7", 0, envelope=False))
    archive.note_place(b"a/b", ArchivedPlace(b"a/b", 1, envelope=True))
    parts = [b"a/b-0", b"a/b", b"a/b-2", b"a/b-10"]
    assert Archive.existing(tmp_path).partitions(b"a/b") == parts
    assert archive.partitions(b"a/b-7") == [b"a/b-7"]
    assert archive.partitions(b"other") == [b"other"]
    assert archive.place(b"a/b-10") == ArchivedPlace(b"a/b", 10, envelope=True)
    assert archive.place(b"other") is None


def test_a_place_is_noted_once_and_anew_where_it_is_damaged(tmp_path):
    archive = archive_at(tmp_path)
    archive.files.make_folder(NEW_FOLDER)
    place = ArchivedPlace(b"t", 3, envelope=False)
    archive.note_place(b"t-3", place)
    path = tmp_path / "topic=t-3/_place.json"
    written = path.stat().st_ino
    archive.note_place(b"t-3", place)
    assert path.stat().st_ino == written
    path.write_bytes(b"{")
    with pytest.raises(ReadFailed, match="does not tell"):
        archive.place(b"t-3")
    archive.note_place(b"t-3", place)
    assert archive.place(b"t-3") == place


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b'{"version": 1}', b'{"version": 1, "topic": "%zz"}']
)
def test_what_is_no_place_is_refused(content):
    with pytest.raises(ReadFailed, match="x: it does not tell"):
        ArchivedPlace.decode(content, "x")
    with pytest.raises(FormatNotSupported):
        ArchivedPlace.decode(b'{"version": 2}', "x")


def test_a_place_that_cannot_be_noted_leaves_the_one_before(tmp_path):
    archive = archive_at(tmp_path)
    archive.files.make_folder(NEW_FOLDER)
    archive.note_place(b"t-3", ArchivedPlace(b"t", 3, envelope=False))
    archive.files.fail(0, errno.ENOSPC, "write_at", is_for_ever=True)
    with pytest.raises(StorageError):
        archive.note_place(b"t-3", ArchivedPlace(b"t", 3, envelope=True))
    assert Archive.existing(tmp_path).place(b"t-3") == ArchivedPlace(b"t", 3, envelope=False)
