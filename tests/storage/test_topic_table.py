"""Topics that rest are known by the events of the store, and read when somebody asks for them."""

import os

import pytest

from poe.errors import SegmentLocked, TopicFailed
from poe.storage import (
    RealFiles,
    SegmentOptions,
    Store,
    check_events,
    check_segments,
)
from poe.storage.formats import store_meta
from poe.storage.store import store
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW, read_all

TOPICS = [b"a", b"b", b"c"]


@pytest.fixture(autouse=True)
def no_topics_are_few(monkeypatch):
    monkeypatch.setattr(store, "FEW_TOPICS", 0)


@pytest.fixture
def base(tmp_path):
    """A store that was closed, with two segments on each topic."""
    made = Store.open(tmp_path)
    for topic in TOPICS:
        for number in range(2):
            made.create_segment(topic, NOW).append([b"%d" % number], NOW)
    made.close()
    return tmp_path


class CountingFiles(FaultyFiles):
    """Notes which folders of topics are listed."""

    def __init__(self, base):
        super().__init__(RealFiles.at(base))
        self.listed = []

    def list_folder(self, path):
        if path != "quarantine":
            self.listed.append(path)
        return super().list_folder(path)


def messages(opened, topic):
    return [message for segment in opened.topics[topic] for _, message in read_all(segment)]


def resting(opened):
    return sorted(opened.topics.resting)


def test_after_a_clean_stop_a_start_looks_into_no_folder_of_a_topic(base):
    files = CountingFiles(base)
    opened = Store.open(files)
    assert files.listed == ["topics"]
    assert sorted(opened.topics) == TOPICS
    assert len(opened.topics) == 3
    assert b"a" in opened.topics
    assert b"d" not in opened.topics
    assert messages(opened, b"b") == [b"0", b"1"]
    assert files.listed == ["topics", "topics/b"]
    assert resting(opened) == [b"a", b"c"]
    with pytest.raises(KeyError):
        opened.topics[b"d"]


def test_few_topics_are_all_read_at_a_start(base, monkeypatch):
    monkeypatch.setattr(store, "FEW_TOPICS", 3)
    assert resting(Store.open(base)) == []


def test_what_was_looked_up_or_put_rests_again_after_the_next_stop(base):
    opened = Store.open(base)
    opened.topics[b"a"][-1].unseal()
    opened.topics[b"a"][-1].append([b"2"], NOW)
    assert messages(opened, b"b") == [b"0", b"1"]
    opened.close()
    files = CountingFiles(base)
    opened = Store.open(files)
    assert files.listed == ["topics"]
    assert messages(opened, b"a") == [b"0", b"1", b"2"]


def left_by_a_kill(base, topics=(b"a", b"new")):
    """Put onto some topics of a store, and let its process die."""
    opened = Store.open(base)
    for topic in topics:
        if topic in opened.topics:
            opened.topics[topic][-1].unseal()
        else:
            opened.create_segment(topic, NOW).append([b"1"], NOW)
        opened.topics[topic][-1].append([b"2"], NOW)
    del opened


def test_after_a_kill_no_file_of_a_segment_is_opened_before_its_topic_is_asked_for(base):
    left_by_a_kill(base)
    files = Watching(base)
    opened = Store.open(files)
    looks = {"modified_us", "list_folder", "size"}
    assert {operation for operation, _ in files.seen} == looks
    assert resting(opened) == [*TOPICS, b"new"]
    assert sorted(opened.left_open()) == [b"a", b"new"]
    assert messages(opened, b"a") == [b"0", b"1", b"2"]
    assert messages(opened, b"new") == [b"1", b"2"]
    assert opened.left_open() == []
    assert not list(base.glob("topics/*/*_lock"))


def test_what_was_left_open_is_no_closed_segment_before_it_is_recovered(base):
    left_by_a_kill(base)
    opened = Store.open(base)
    assert len(opened.closed_segments()) == 5
    assert opened.newest_pointer() >= opened.topics.resting[b"new"][-1].timestamp > 0


def test_what_is_settled_rests_and_is_known_by_its_events(base):
    left_by_a_kill(base)
    opened = Store.open(base)
    assert opened.settle(b"a")
    assert opened.settle(b"new")
    assert resting(opened) == [*TOPICS, b"new"]
    assert opened.left_open() == []
    assert [event.record_count for event in opened.topics.resting[b"a"]] == [1, 2]
    assert len(opened.closed_segments()) == 7
    opened.close()
    files = CountingFiles(base)
    opened = Store.open(files)
    assert files.listed == ["topics"]
    assert messages(opened, b"new") == [b"1", b"2"]


def test_what_is_damaged_does_not_rest(base):
    left_by_a_kill(base)
    [path] = (base / "topics/new").glob("*_data")
    os.truncate(path, 3)
    opened = Store.open(base)
    assert not opened.settle(b"new")
    assert b"new" in opened.topics.loaded


@pytest.mark.parametrize("is_same_boot", [True, False])
def test_a_store_that_is_closed_before_all_is_recovered_is_as_one_that_was_killed(
    base, is_same_boot
):
    left_by_a_kill(base)
    opened = Store.open(base)
    assert opened.settle(b"a")
    opened.close()
    boot_id = {} if is_same_boot else {"boot_id": "another boot"}
    opened = Store.open(FaultyFiles(RealFiles.at(base), **boot_id))
    assert opened.left_open() == ([b"new"] if is_same_boot else [])
    assert resting(opened) == ([*TOPICS, b"new"] if is_same_boot else [])
    assert messages(opened, b"a") == [b"0", b"1", b"2"]


def remove(path):
    path.unlink()


def make_stray(path):
    path.with_name("stray").touch()


def make_segment(path):
    path.with_name("1_data").touch()


def empty_the_lock(path):
    path.with_name(path.name.replace("_data", "_lock")).write_bytes(b"")


def unlock(path):
    path.with_name(path.name.replace("_data", "_lock")).unlink()


@pytest.mark.parametrize("change", [remove, make_stray, make_segment, empty_the_lock, unlock])
def test_after_a_kill_a_folder_that_is_not_as_it_was_left_is_read_at_the_start(base, change):
    left_by_a_kill(base)
    [*_, path] = sorted((base / "topics/new").glob("*_data"))
    change(path)
    opened = Store.open(base)
    assert opened.left_open() == [b"a"]
    assert b"new" not in opened.topics.resting


def test_after_a_power_cut_every_folder_is_looked_into(base):
    left_by_a_kill(base)
    opened = Store.open(FaultyFiles(RealFiles.at(base), boot_id="another boot"))
    assert resting(opened) == []
    assert messages(opened, b"b") == [b"0", b"1"]


def test_a_topic_with_a_name_that_was_changed_is_read_at_the_start(base):
    (base / "topics/b/foreign").touch()
    assert resting(Store.open(base)) == [b"a", b"c"]


def test_a_file_that_was_changed_is_found_when_the_topic_is_looked_up(base, caplog):
    [*_, path] = sorted((base / "topics/b").glob("*_data"))
    with path.open("ab") as file:
        file.write(b"more")
    opened = Store.open(base)
    assert resting(opened) == TOPICS
    assert not caplog.records
    assert messages(opened, b"b") == [b"0", b"1"]
    assert "4 bytes are cut off" in caplog.text


def test_a_lock_of_the_original_keeps_a_start_from_going_on(base):
    [*_, path] = sorted((base / "topics/b").glob("*_data"))
    lock = path.with_name(path.name.replace("_data", "_lock"))
    with lock.open("wb"), pytest.raises(SegmentLocked):
        # Held open by this very process, the lock is that of a live writer for another layer.
        Store.open(_SeenElsewhere(RealFiles.at(base)))


def refuse(base, boot_id):
    """Start a server in a boot of the machine, while an original serves `c`; end the original."""
    [*_, data] = sorted((base / "topics/c").glob("*_data"))
    lock = data.with_name(data.name.replace("_data", "_lock"))
    with lock.open("wb"), pytest.raises(SegmentLocked):
        Store.open(_SeenElsewhere(RealFiles.at(base), boot_id))
    lock.unlink()


def test_a_start_that_is_refused_does_not_forget_a_power_cut(base, caplog):
    opened = Store.open(base)
    del opened
    for _ in range(2):
        refuse(base, "another boot")
        caplog.clear()
    opened = Store.open(FaultyFiles(RealFiles.at(base), "another boot"))
    assert "was not stopped, before a reboot" in caplog.text
    assert resting(opened) == []


def test_a_start_that_is_refused_is_no_power_cut(base, caplog):
    refuse(base, "another boot")
    opened = Store.open(FaultyFiles(RealFiles.at(base), "another boot"))
    assert "before a reboot" not in caplog.text
    assert resting(opened) == [b"a", b"b"]


class _SeenElsewhere(FaultyFiles):
    def is_open_elsewhere(self, path):
        del path
        return True


def test_a_topic_that_cannot_be_read_when_it_is_looked_up_is_out_of_service(base):
    files = FaultyFiles(RealFiles.at(base))
    opened = Store.open(files)
    files.fail(0, 5, "list_folder", is_for_ever=True)
    with pytest.raises(TopicFailed):
        opened.topics[b"b"]
    assert list(opened.failed) == [b"b"]
    assert resting(opened) == [b"a", b"c"]
    files.heal()
    opened.recover_topic(b"b")
    assert messages(opened, b"b") == [b"0", b"1"]
    assert not opened.failed


def lose(base, topic, number):
    """Remove the files of a segment."""
    data = sorted((base / f"topics/{topic}").glob("*_data"))[number]
    for path in data.parent.glob(data.name.replace("_data", "_*")):
        path.unlink()


def lost(opened, topic):
    return [(each.first, each.last) for each in opened.removals.extents(topic)]


def test_what_was_taken_away_of_a_topic_that_rests_is_known_as_soon_as_it_is_read(base, caplog):
    opened = Store.open(base)
    extents = [(each.pointer_low, each.pointer_high) for each in opened.topics.resting[b"a"]]
    lose(base, "a", 0)
    assert messages(opened, b"a") == [b"1"]
    assert lost(opened, b"a") == extents[:1]
    assert "of topic b'a' is gone with all its files" in caplog.text
    for topic in ("b", "b"):
        lose(base, topic, 0)
    with pytest.raises(KeyError):
        opened.topics[b"b"]
    assert lost(opened, b"b") == extents
    assert opened.create_segment(b"b", 0).timestamp > extents[-1][1]
    assert lost(opened, b"c") == []
    opened.close()
    for _ in range(2):
        opened = Store.open(base)
        assert lost(opened, b"a") == extents[:1]
        assert lost(opened, b"b") == extents
        opened.close()
    assert resting(opened) == TOPICS
    assert len(opened.topics.resting[b"a"]) == 1


def test_what_was_taken_away_of_a_topic_that_was_left_open_is_known_as_soon_as_it_is_read(base):
    opened = Store.open(base)
    [first, last] = opened.topics.resting[b"a"]
    opened.topics[b"a"][-1].unseal()
    opened.topics[b"a"][-1].append([b"2"], NOW)
    del opened
    opened = Store.open(base)
    lose(base, "a", 0)
    lose(base, "a", 0)
    with pytest.raises(KeyError):
        opened.topics[b"a"]
    [told, open_one] = lost(opened, b"a")
    assert told == (first.pointer_low, first.pointer_high)
    assert open_one[0] == last.timestamp
    assert open_one[1] > last.pointer_high, "nobody knows how much was put"


def test_a_put_onto_a_topic_that_rests_goes_behind_what_it_holds(base):
    opened = Store.open(base, SegmentOptions())
    last = opened.topics.resting[b"c"][-1].pointer_high
    assert opened.newest_pointer() >= last
    segment = opened.create_segment(b"c", 0)
    assert segment.append([b"2"], 0) > last
    assert messages(opened, b"c") == [b"0", b"1", b"2"]


def test_what_rests_is_scrubbed_too(base):
    opened = Store.open(base)
    assert len(opened.closed_segments()) == 6
    for path in opened.closed_segments():
        assert sum(opened.scrub(path)) > 0
    assert resting(opened) == TOPICS


def test_a_topic_that_was_deleted_rests_no_more(base):
    opened = Store.open(base)
    for segment in list(opened.topics[b"b"]):
        opened.destroy_segment(b"b", segment)
    opened.close()
    opened = Store.open(base)
    assert resting(opened) == [b"a", b"c"]
    assert sorted(opened.topics) == [b"a", b"c"]


def test_the_note_is_a_hint_and_what_is_served_is_what_the_files_hold(base):
    """As if the kernel's clock had not gone on between the stop and what was put after it."""
    folder = base / "topics/b"
    noted_ns = folder.stat().st_mtime_ns
    opened = Store.open(base)
    opened.topics[b"b"][-1].unseal()
    opened.topics[b"b"][-1].append([b"2"], NOW)
    del opened  # killed: its lock is there
    assert [path.name for path in folder.glob("*_lock")]
    os.utime(folder, ns=(noted_ns, noted_ns))
    opened = Store.open(base)
    assert resting(opened) == TOPICS
    assert messages(opened, b"b") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_where_the_notes_are_damaged_all_folders_are_looked_into(base, share, caplog):
    meta = base / "store.meta"
    content = bytearray(meta.read_bytes())
    content[int(len(content) * share)] ^= 1
    meta.write_bytes(content)
    opened = Store.open(base)
    assert "damaged" in caplog.text
    assert len(resting(opened)) < len(TOPICS)
    for topic in TOPICS:
        assert messages(opened, topic) == [b"0", b"1"]
    opened.close()
    assert resting(Store.open(base)) == TOPICS


def test_notes_of_rest_are_nothing_to_be_told_of_by_a_check(base):
    files = RealFiles.at(base)
    assert list(check_events(files)) == []
    assert not any(found.damage or found.notes for found in check_segments(files))


class Watching(FaultyFiles):
    """Notes what is done to the folders of topics, and to what is in them."""

    def __init__(self, base):
        self.seen: list[tuple[str, str]] = []
        super().__init__(Noting(RealFiles.at(base), self.seen))


class Noting:
    def __init__(self, real, seen):
        self._real = real
        self._seen = seen

    def __getattr__(self, name):
        found = getattr(self._real, name)
        if not callable(found):
            return found

        def call(*arguments):
            if arguments and str(arguments[0]).startswith("topics/"):
                self._seen.append((name, arguments[0]))
            return found(*arguments)

        return call


def test_a_start_and_a_stop_do_nothing_for_a_topic_that_rests_but_look_at_its_folder_once(base):
    files = Watching(base)
    opened = Store.open(files)
    assert files.seen == [("modified_us", f"topics/{topic.decode()}") for topic in TOPICS]
    files.seen.clear()
    opened.close()
    assert files.seen == []
    assert resting(Store.open(base)) == TOPICS


def test_a_note_that_was_written_anew_is_believed_as_before(base, monkeypatch):
    monkeypatch.setattr(store_meta, "_COMPACT_BYTES_MIN", 0)
    for _ in range(4):
        opened = Store.open(base)
        assert resting(opened) == TOPICS
        opened.close()
