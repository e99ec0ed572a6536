"""A store finds its topics again, keeps others out, and leaves alone what is not its own."""

import errno
import gc
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from poe.errors import (
    InvalidTopicName,
    OptionError,
    SegmentLocked,
    StorageFull,
    StoreLocked,
    TopicFailed,
)
from poe.storage import RealFiles, Segment, SegmentOptions, Store, check_segments
from poe.storage.formats.store_meta import StoreMeta
from poe.storage.store.property_file import PropertyFile
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW, names_in, read_all, wait_for_line

STORE_PROGRAM = """
import sys
from pathlib import Path
from poe.storage import Store
store = Store.open(Path(sys.argv[1]))
print("open", flush=True)
input()
"""


def messages_of(segments):
    return [[m for _, m in read_all(segment)] for segment in segments]


def test_a_new_folder_is_made_with_parents_and_private(tmp_path):
    base = tmp_path / "a/b"
    store = Store.open(base)
    assert store.topics == {}
    assert sorted(names_in(base)) == ["store.lock", "store.meta", "topics"]
    assert base.stat().st_mode & 0o777 == 0o700
    assert (base / "store.lock").read_text().startswith(f"{os.getpid()}\n")


def test_a_damaged_lock_tells_of_no_boot_and_the_store_opens(tmp_path):
    Store.open(tmp_path).close()
    (tmp_path / "store.lock").write_bytes(b"17\n\xff\xfe\n")
    store = Store.open(tmp_path)
    assert (tmp_path / "store.lock").read_text().startswith(f"{os.getpid()}\n")
    store.close()


@pytest.mark.parametrize("nth", [0, 1])
def test_a_lock_that_cannot_be_written_is_logged_and_the_store_opens(tmp_path, caplog, nth):
    Store.open(tmp_path).close()
    layer = FaultyFiles(RealFiles.at(tmp_path))
    layer.fail(nth, errno.EIO, "truncate")
    Store.open(layer).close()
    assert "store.lock does not tell who holds it" in caplog.text


def test_topics_and_their_segments_are_found_again_in_order(tmp_path):
    store = Store.open(tmp_path)
    for round_number in range(3):
        for topic in (b"t", b"u"):
            segment = store.create_segment(topic, NOW)
            segment.append([b"%s%d" % (topic, round_number)] * 2, NOW)
    last = store.last_pointer(b"t")
    store.close()
    store = Store.open(tmp_path)
    assert sorted(store.topics) == [b"t", b"u"]
    assert messages_of(store.topics[b"t"]) == [[b"t0"] * 2, [b"t1"] * 2, [b"t2"] * 2]
    assert store.last_pointer(b"t") == last
    assert store.last_pointer(b"unknown") == 0
    assert not any(segment.is_writer for segment in store.topics[b"t"])


def test_a_start_compares_no_segment_with_all_before_it(tmp_path, monkeypatch):
    """Of 10,000 in one topic, that took several seconds of the two that a start may take."""
    store = Store.open(tmp_path)
    for number in range(30):
        store.create_segment(b"t", NOW + number).append([b"x"], NOW + number)
    store.close()
    looked = []

    def look(segment):
        looked.append(segment)
        return segment.last_pointer if segment.count else None

    monkeypatch.setattr(Segment, "pointer_high", property(look))
    assert len(Store.open(tmp_path).topics[b"t"]) == 30
    assert len(looked) <= 5 * 30


def test_a_new_segment_begins_behind_all_before_it_whatever_the_clock_says(tmp_path):
    store = Store.open(tmp_path)
    first = store.create_segment(b"t", NOW)
    second = store.create_segment(b"t", NOW - 10**9)
    assert second.timestamp == NOW + 1
    assert not first.is_writer
    last = second.append([b"x"] * 50, NOW + 70)
    third = store.create_segment(b"t", NOW)
    assert third.timestamp == last + 1
    assert third.append([b"y"], 0) == last + 1
    assert store.topics[b"t"] == [first, second, third]


def test_a_dropped_store_recovers_every_batch_and_may_go_on(tmp_path):
    store = Store.open(tmp_path)
    for number in range(3):
        store.create_segment(b"t", NOW).append([b"%d" % number] * 30, NOW)
    last = store.last_pointer(b"t")
    del store
    store = Store.open(tmp_path)
    segments = store.topics[b"t"]
    assert messages_of(segments) == [[b"%d" % number] * 30 for number in range(3)]
    segments[-1].unseal()
    assert segments[-1].append([b"more"], 0) == last + 1


def test_empty_segments_left_by_a_crash_are_kept_apart(tmp_path):
    store = Store.open(tmp_path)
    store.create_segment(b"t", NOW).append([b"x"], NOW + 100)
    store.create_segment(b"t", NOW)
    store.create_segment(b"t", NOW)
    del store
    segments = Store.open(tmp_path).topics[b"t"]
    assert [segment.count for segment in segments] == [1, 0, 0]
    segments[-1].unseal()
    assert segments[-1].append([b"y"], 0) > NOW + 100


def test_an_empty_segment_of_others_with_an_old_name_takes_greater_pointers_only(tmp_path):
    store = Store.open(tmp_path)
    store.create_segment(b"t", NOW).append([b"x"], NOW + 100)
    store.close()
    (tmp_path / f"topics/t/{NOW + 5}_data").touch()
    segments = Store.open(tmp_path).topics[b"t"]
    segments[-1].unseal()
    assert segments[-1].append([b"y"], 0) == NOW + 101


@pytest.mark.parametrize("topic", [b"", b"..", b"a/b", b"a\0", b"\n", b"\xff", b"x" * 201, b".t"])
def test_a_hostile_topic_makes_nothing_anywhere(tmp_path, topic):
    base = tmp_path / "base"
    store = Store.open(base)
    with pytest.raises(InvalidTopicName):
        store.create_segment(topic, NOW)
    assert names_in(base / "topics") == []
    assert names_in(tmp_path) == ["base"]


@pytest.mark.parametrize("topic", [b"a_data", b"1_index", b"1_lock", b"store.lock", b"x" * 200])
def test_a_topic_named_like_a_file_of_ours_harms_none(tmp_path, topic):
    store = Store.open(tmp_path)
    for name in (topic, b"1"):
        store.create_segment(name, NOW).append([name], NOW)
    store.close()
    found = Store.open(tmp_path).topics
    assert {name: messages_of(segments) for name, segments in found.items()} == {
        topic: [[topic]],
        b"1": [[b"1"]],
    }


def test_a_symbolic_link_in_the_way_of_a_topic_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    base = tmp_path / "base"
    store = Store.open(base)
    (base / "topics/t").symlink_to(outside)
    with pytest.raises(Exception, match="topics/t"):
        store.create_segment(b"t", NOW)
    assert names_in(outside) == []
    store.close()
    assert Store.open(base).topics == {}


def test_a_symbolic_link_in_the_way_of_a_segment_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    base = tmp_path / "base"
    store = Store.open(base)
    store.create_segment(b"t", NOW).append([b"x"], NOW)
    store.close()
    for suffix in ("data", "index", "lock"):
        (base / f"topics/t/{NOW + 100}_{suffix}").symlink_to(victim)
    store = Store.open(base)
    assert victim.read_text() == "precious"
    assert str(NOW + 100) in str(store.failed[b"t"])


@pytest.mark.parametrize("suffix", ["data", "index", "sum", "lock"])
@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFSOCK])
def test_what_is_no_file_in_the_place_of_one_holds_up_nobody(tmp_path, suffix, kind):
    """To open a pipe waits for somebody at its other end."""
    store = Store.open(tmp_path)
    for topic in (b"t", b"u"):
        store.create_segment(topic, NOW).append([topic], NOW)
    store.close()
    path = tmp_path / f"topics/t/{NOW}_{suffix}"
    path.unlink(missing_ok=True)
    os.mknod(path, kind | 0o600)
    (tmp_path / "store.meta").unlink()
    found = list(check_segments(RealFiles.at(tmp_path)))
    assert [bool(each.damage) for each in found] == [True, False]
    store = Store.open(tmp_path)
    assert messages_of(store.topics[b"u"]) == [[b"u"]]
    if kind == stat.S_IFIFO:  # to open a socket is an error in any case
        assert f"not a regular file: {path.name}" in str(store.failed[b"t"])
    assert list(store.failed) == [b"t"]
    assert stat.S_IFMT(path.lstat().st_mode) == kind


@pytest.mark.parametrize("suffix", ["data", "index", "sum", "lock"])
def test_a_file_that_is_larger_than_any_memory_harms_its_topic_alone(tmp_path, suffix):
    store = Store.open(tmp_path)
    for topic in (b"t", b"u"):
        store.create_segment(topic, NOW).append([topic], NOW)
    store.close()
    with (tmp_path / f"topics/t/{NOW}_{suffix}").open("ab") as file:
        file.truncate(1 << 43)
    list(check_segments(RealFiles.at(tmp_path)))
    store = Store.open(tmp_path)
    assert messages_of(store.topics[b"u"]) == [[b"u"]]
    assert b"t" in store.failed or messages_of(store.topics[b"t"]) == [[b"t"]]


@pytest.mark.parametrize("name", ["store.meta", "store.lock"])
def test_a_pipe_in_the_place_of_a_file_of_the_store_is_told_or_left_alone(tmp_path, name):
    store = Store.open(tmp_path)
    store.create_segment(b"t", NOW).append([b"x"], NOW)
    store.close()
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    if name == "store.lock":
        with pytest.raises(OptionError, match="not a regular file"):
            Store.open(tmp_path)
    else:
        assert messages_of(Store.open(tmp_path).topics[b"t"]) == [[b"x"]]


def test_strays_are_left_alone_with_a_warning(tmp_path, caplog):
    store = Store.open(tmp_path)
    store.create_segment(b"t", NOW).append([b"x"], NOW)
    store.close()
    topics = tmp_path / "topics"
    (topics / "a file").write_text("?")
    (topics / "lost+found").mkdir()
    (topics / ".hidden").mkdir()
    (topics / "t/notes.txt").write_text("?")
    (topics / "t/007_data").write_text("?")
    (topics / "t" / f"{1 << 56}_data").touch()  # no pointer could follow
    (topics / "t/5_data").mkdir()
    (topics / "t" / os.fsdecode(b"\xff_data")).write_text("?")
    store = Store.open(tmp_path)
    assert messages_of(store.topics[b"t"]) == [[b"x"]]
    assert sorted(store.topics) == [b"t"]
    assert (topics / "t/007_data").read_text() == "?"
    assert sorted(names_in(topics)) == [".hidden", "a file", "lost+found", "t"]
    assert sum("left alone" in message for message in caplog.messages) == 4
    store.create_segment(b"t", NOW + 1).append([b"y"], NOW)
    assert [each.damage for each in check_segments(RealFiles.at(tmp_path))] == [[], []]


def test_an_index_that_recovery_did_not_put_in_place_is_removed(tmp_path):
    store = Store.open(tmp_path)
    store.create_segment(b"t", NOW).append([b"x"], NOW)
    store.close()
    (tmp_path / f"topics/t/{NOW}_index_new").write_text("?")
    assert messages_of(Store.open(tmp_path).topics[b"t"]) == [[b"x"]]
    assert sorted(names_in(tmp_path / "topics/t")) == [
        f"{NOW}_{suffix}" for suffix in ("data", "index", "sum")
    ]


@pytest.mark.slow
def test_a_second_server_is_refused_until_the_first_has_gone(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", STORE_PROGRAM, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as server:
        wait_for_line(server)
        with pytest.raises(StoreLocked, match=str(server.pid)) as caught:
            Store.open(tmp_path)
        assert caught.value.pid == server.pid
        server.kill()
    store = Store.open(tmp_path)
    with pytest.raises(StoreLocked):
        Store.open(tmp_path)
    store.close()
    Store.open(tmp_path).close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize(
    ("part", "method"),
    [(StoreMeta, "__init__"), (PropertyFile, "__init__"), (Store, "_recover_topics")],
)
def test_an_interrupted_recovery_keeps_no_lock(tmp_path, monkeypatch, part, method, error):
    """Not even while somebody keeps the interrupt and its frames, as Python's prompt does."""

    def interrupt(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(part, method, interrupt)
        with pytest.raises((error, OptionError)) as kept:
            Store.open(tmp_path)
    Store.open(tmp_path).close()
    assert kept.value.__traceback__ is not None


def test_a_started_program_does_not_inherit_the_lock(tmp_path):
    store = Store.open(tmp_path)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as child:
        held = [path.resolve() for path in Path(f"/proc/{child.pid}/fd").iterdir()]
        assert not any(path.is_relative_to(tmp_path) for path in held)
        store.close()
        Store.open(tmp_path).close()
        child.communicate()


@pytest.mark.parametrize(
    "kind", ["file", "below a file", "topics is a file", "topics is a link", "link to nowhere"]
)
def test_a_folder_that_cannot_be_used_is_a_wrong_option(tmp_path, kind):
    base = tmp_path / "base"
    if kind == "link to nowhere":
        base.symlink_to(tmp_path / "away")
    elif kind in {"file", "below a file"}:
        base.touch()
        base = base / "x" if kind == "below a file" else base
    else:
        base.mkdir()
        (base / "topics").touch() if kind == "topics is a file" else (base / "topics").symlink_to(
            tmp_path
        )
    with pytest.raises(OptionError) as caught:
        Store.open(base)
    assert caught.value.key == "dir"
    assert caught.value.value == str(base)
    assert ("it is a file" in str(caught.value)) is (kind == "file")
    assert ("leads nowhere" in str(caught.value)) is (kind == "link to nowhere")


def test_a_folder_that_may_not_be_written_is_a_wrong_option(tmp_path):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    layer.fail(0, errno.EROFS, "make_folder")
    with pytest.raises(OptionError, match="Read-only"):
        Store.open(layer)
    Store.open(tmp_path).close()


def test_a_topic_that_cannot_be_read_does_not_stop_the_others(tmp_path):
    store = Store.open(tmp_path)
    for topic in (b"a", b"b"):
        store.create_segment(topic, NOW).append([topic], NOW)
    store.close()
    (tmp_path / "store.meta").unlink()  # or nothing of closed segments would be read
    layer = FaultyFiles(RealFiles.at(tmp_path))
    layer.fail(1, errno.EIO, "read_at")  # behind the lock
    store = Store.open(layer)
    assert sorted(store.topics) == [b"b"]
    assert "cannot read" in str(store.failed[b"a"])
    with pytest.raises(TopicFailed, match="cannot read"):
        store.create_segment(b"a", NOW)
    store.recover_topic(b"a")
    assert store.failed == {}
    assert messages_of(store.topics[b"a"]) == [[b"a"]]


def test_a_live_original_stops_the_start_and_frees_the_store(tmp_path):
    store = Store.open(tmp_path)
    store.create_segment(b"t", NOW).append([b"x"], NOW)
    store.close()
    lock = tmp_path / f"topics/t/{NOW}_lock"
    lock.touch()
    program = f"file = open({str(lock)!r}); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as original:
        wait_for_line(original)
        with pytest.raises(SegmentLocked):
            Store.open(tmp_path)
        original.communicate(b"\n")
    assert messages_of(Store.open(tmp_path).topics[b"t"]) == [[b"x"]]


@pytest.mark.parametrize("ack", ["flushed", "fsync"])
def test_nothing_is_left_of_a_topic_whose_first_segment_cannot_be_made(tmp_path, ack):
    """Whichever call it is that finds the disk full."""
    layer = FaultyFiles(RealFiles.at(tmp_path))
    store = Store.open(layer, SegmentOptions(ack=ack))
    for nth in range(1, 20):  # before them it is looked whether the folder is there, come what may
        layer.fail(nth, errno.ENOSPC)
        try:
            segment = store.create_segment(b"t", NOW)
        except StorageFull:
            assert store.topics == {}
            assert names_in(tmp_path / "topics") == []
        else:
            break
    assert 3 <= nth < 20
    layer.heal()
    assert segment.append([b"x"], NOW) == NOW


def test_a_folder_in_which_a_kill_left_nothing_goes(tmp_path):
    Store.open(tmp_path).close()
    (tmp_path / "topics/empty").mkdir(parents=True)
    (tmp_path / "topics/strange").mkdir()
    (tmp_path / "topics/strange/notes").touch()
    assert Store.open(tmp_path).topics == {}
    assert names_in(tmp_path / "topics") == ["strange"]


def test_removing_segments_ends_with_the_topic_but_not_its_pointers(tmp_path):
    store = Store.open(tmp_path)
    first = store.create_segment(b"t", NOW)
    first.append([b"x"], NOW)
    second = store.create_segment(b"t", NOW)
    last = second.append([b"y"], NOW)
    store.destroy_segment(b"t", first)
    assert store.topics[b"t"] == [second]
    assert sorted(names_in(tmp_path / "topics/t")) == [
        f"{second.timestamp}_{suffix}" for suffix in ("data", "index", "lock", "sum")
    ]
    store.destroy_segment(b"t", second)
    assert store.topics == {}
    assert names_in(tmp_path / "topics") == []
    assert store.last_pointer(b"t") == last
    assert store.create_segment(b"t", NOW).append([b"z"], NOW) == last + 1


@pytest.mark.parametrize("ack", ["flushed", "memory"])
def test_repairing_a_segment_keeps_its_messages_and_its_place(tmp_path, ack):
    store = Store.open(tmp_path, SegmentOptions(ack=ack))
    first = store.create_segment(b"t", NOW)
    first.append([b"a"], NOW)
    second = store.create_segment(b"t", NOW)
    second.append([b"b"], NOW)
    third = store.create_segment(b"t", NOW)
    repaired = store.repair_segment(b"t", second)
    assert store.topics[b"t"] == [first, repaired, third]
    assert messages_of([repaired]) == [[b"b"]]
    third.append([b"c"], NOW)
    repaired = store.repair_segment(b"t", third)
    assert repaired is not None
    repaired.unseal()
    repaired.append([b"d"], NOW)
    assert messages_of(store.topics[b"t"]) == [[b"a"], [b"b"], [b"c", b"d"]]


def test_repairing_a_segment_without_data_takes_it_out(tmp_path):
    store = Store.open(tmp_path)
    first = store.create_segment(b"t", NOW)
    first.append([b"a"], NOW)
    second = store.create_segment(b"t", NOW)
    (tmp_path / f"{first.path}_data").unlink()
    assert store.repair_segment(b"t", first) is None
    assert store.topics[b"t"] == [second]


class FullFolder(FaultyFiles):
    """Has room everywhere but in the folder `full`."""

    full = "nowhere"

    def open(self, path, mode):
        file = super().open(path, mode)
        write_at = file.write_at

        def write(data, offset):
            if path.startswith(self.full):
                self.check("write into a full folder")
            write_at(data, offset)

        file.write_at = write  # type: ignore[method-assign]  # of this file alone
        return file


def test_closing_goes_on_behind_a_segment_that_fails(tmp_path):
    layer = FullFolder(RealFiles.at(tmp_path))
    store = Store.open(layer)
    for topic in (b"a", b"b"):
        store.create_segment(topic, NOW).append([topic], NOW)
    layer.full = "topics/a/"
    layer.fail(0, errno.ENOSPC, "write into a full folder", is_for_ever=True)
    store.close()
    assert len(names_in(tmp_path / "topics/a")) == 4
    assert len(names_in(tmp_path / "topics/b")) == 3
    found = Store.open(tmp_path).topics
    assert [messages_of(found[topic]) for topic in (b"a", b"b")] == [[[b"a"]], [[b"b"]]]


def test_a_sync_makes_the_names_of_all_folders_durable(tmp_path, monkeypatch):
    files = FaultyFiles(RealFiles.at(tmp_path / "new"))
    synced: list[str] = []
    monkeypatch.setattr(files, "sync_folder", synced.append)
    segment = Store.open(files).create_segment(b"t", NOW)
    segment.append([b"a"], NOW)
    segment.sync()
    assert set(synced) == {"", "topics", "topics/t"}


def living_segments():
    gc.collect()
    return sum(type(each) is Segment for each in gc.get_objects())


@pytest.mark.slow
def test_of_segments_that_are_destroyed_before_they_are_synced_nothing_stays(tmp_path):
    before = living_segments()
    store = Store.open(tmp_path)
    for number in range(10):
        store.create_segment(b"t", NOW + number).append([b"m"], NOW + number)
    while len(store.topics[b"t"]) > 1:
        store.destroy_segment(b"t", store.topics[b"t"][0])
    assert living_segments() - before <= 2, "the one right before the last, until that is synced"
    store.topics[b"t"][0].sync()
    assert living_segments() - before == 1


@pytest.mark.parametrize("how", ["recover", "repair"])
def test_pointers_of_what_was_cut_off_are_not_given_again_behind_a_crash(tmp_path, how):
    store = Store.open(tmp_path, SegmentOptions(ack="fsync"))
    segment = store.create_segment(b"t", NOW)
    first = segment.append([b"kept"], NOW)
    segment.sync()
    cut = segment.append([b"cut"] * 1000, NOW)
    segment.begin_cut("its disk has failed")()
    if how == "repair":
        store.repair_segment(b"t", segment)
    else:
        store.recover_topic(b"t")
    [segment] = store.topics[b"t"]
    assert segment.pointer_high == first
    segment.unseal()
    assert segment.append([b"new"], NOW) > cut


def test_what_waits_in_memory_is_written_before_a_topic_is_read_again(tmp_path):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    store = Store.open(layer, SegmentOptions(ack="memory"))
    segment = store.create_segment(b"t", NOW)
    segment.append([b"m"], NOW)
    layer.fail(0, errno.ENOSPC)
    with pytest.raises(StorageFull):
        segment.close()  # as its server does when the topic registry has died
    store.recover_topic(b"t")
    [segment] = store.topics[b"t"]
    assert [message for _, message in read_all(segment)] == [b"m"]
