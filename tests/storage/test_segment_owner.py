"""Files of another segment or topic are recognised, put into quarantine, told of, never served."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from poe.errors import CorruptRecord
from poe.storage import (
    RealFiles,
    SegmentOptions,
    Store,
    check_foreign,
    check_segments,
    repair_segments,
)
from poe.storage.formats.hashed import FILE_HEADER_BYTES
from poe.storage.formats.sum_file import SUMS
from tests.storage.segments import NOW, names_in, read_all

SUFFIXES = ("_data", "_index", "_sum", "_seq", "_lock")
SIZES = [(3, 3), (3, 5)]
"""Messages of two segments: with equal sizes only their content tells them apart."""


def fill(base, topics=(b"t",), counts=(3, 3), put=None):
    """Two segments or more a topic, closed."""
    store = Store.open(base)
    for number, topic in enumerate(topics):
        for segment_number, count in enumerate(counts):
            segment = store.create_segment(topic, NOW + 1000 * number + segment_number)
            messages = [b"%s%d" % (topic, segment_number)] * count
            segment.append(messages, NOW, put and (*put, segment_number))
            segment.flush()
            segment.append(messages, NOW)
    return store


def closed(base, *arguments, **named):
    fill(base, *arguments, **named).close()


def segment_paths(base, topic="t"):
    return [str(each)[: -len("_data")] for each in sorted((base / "topics" / topic).glob("*_data"))]


def swap(one, other, suffixes=SUFFIXES):
    """Have the files of two segments change places."""
    for suffix in suffixes:
        moved = []
        for source, target in ((one, other), (other, one)):
            path = Path(source + suffix)
            if path.exists():
                moved.append((target + suffix, path.read_bytes()))
                path.unlink()
        for target, content in moved:
            Path(target).write_bytes(content)


def messages_of(store):
    return {
        topic: [message for segment in segments for _, message in read_all(segment)]
        for topic, segments in store.topics.items()
    }


def findings(base):
    files = RealFiles.existing(base)
    return [f for each in check_segments(files) for f in each.damage] + list(check_foreign(files))


def starts_tell(base, caplog, served, *folders):
    """Three starts serve this, tell of these folders, and change nothing any more."""
    for _ in range(3):
        caplog.clear()
        store = Store.open(base)
        assert messages_of(store) == served
        told = store.foreign()
        assert [each.split(" ")[0] for each in told] == [f"quarantine/{f}" for f in folders]
        store.close()
        for folder in folders:
            assert f"quarantine/{folder} holds" in caplog.text
            assert any(folder in finding for finding in findings(base))
    assert findings(base)


@pytest.mark.parametrize("counts", SIZES)
@pytest.mark.parametrize("put", [None, (b"p" * 16, 0)])
def test_two_segments_that_changed_places_are_not_served(tmp_path, caplog, counts, put):
    closed(tmp_path, counts=counts, put=put)
    one, other = segment_paths(tmp_path)
    contents = {name: Path(other + name).read_bytes() for name in ("_data", "_index", "_sum")}
    swap(one, other)
    assert len(findings(tmp_path)) == 2
    starts_tell(tmp_path, caplog, {}, "foreign/t")
    # Nothing is lost: the bytes are there, below the names that they had.
    name = one.rpartition("/")[2]
    for suffix, content in contents.items():
        assert (tmp_path / "quarantine/foreign/t" / (name + suffix)).read_bytes() == content


@pytest.mark.parametrize("counts", SIZES)
def test_segments_of_two_topics_that_changed_places_are_not_served(tmp_path, caplog, counts):
    closed(tmp_path, topics=(b"t", b"u"), counts=counts)
    rest = {b"t": [b"t1"] * 2 * counts[1], b"u": [b"u1"] * 2 * counts[1]}
    swap(segment_paths(tmp_path)[0], segment_paths(tmp_path, "u")[0])
    starts_tell(tmp_path, caplog, rest, "foreign/t", "foreign/u")


def test_segments_that_a_kill_left_open_and_that_changed_places_are_not_served(tmp_path, caplog):
    stores = [fill(tmp_path / "a"), fill(tmp_path / "b", topics=(b"u",))]
    del stores
    (tmp_path / "b/topics/u").rename(tmp_path / "a/topics/u")
    swap(segment_paths(tmp_path / "a")[-1], segment_paths(tmp_path / "a", "u")[-1])
    starts_tell(
        tmp_path / "a", caplog, {b"t": [b"t0"] * 6, b"u": [b"u0"] * 6}, "foreign/t", "foreign/u"
    )


def test_segments_with_nothing_but_a_header_of_sums_are_known_by_their_pointers(tmp_path, caplog):
    """A kill came before the first sum of either was written."""
    closed(tmp_path)
    one, other = segment_paths(tmp_path)
    for path in (one, other):
        os.truncate(path + "_sum", FILE_HEADER_BYTES)
    swap(one, other)
    (tmp_path / "store.meta").unlink()
    starts_tell(tmp_path, caplog, {}, "foreign/t")


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_folder_copied_over_that_of_another_topic_adds_nothing(tmp_path, caplog, count):
    closed(tmp_path, topics=(b"t", b"u"), counts=(2,) * count)
    served = messages_of(Store.open(tmp_path))
    shutil.copytree(tmp_path / "topics/u", tmp_path / "topics/t", dirs_exist_ok=True)
    assert len(findings(tmp_path)) == count
    starts_tell(tmp_path, caplog, served, "foreign/t")


def test_a_folder_that_replaces_that_of_another_topic_is_not_served_as_it(tmp_path, caplog):
    closed(tmp_path, topics=(b"t", b"u"))
    shutil.rmtree(tmp_path / "topics/t")
    shutil.copytree(tmp_path / "topics/u", tmp_path / "topics/t")
    starts_tell(tmp_path, caplog, {b"u": [b"u0"] * 6 + [b"u1"] * 6}, "foreign/t")


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_folder_copied_or_moved_to_a_new_name_is_no_new_topic(tmp_path, caplog, is_moved):
    closed(tmp_path)
    served = {} if is_moved else {b"t": [b"t0"] * 6 + [b"t1"] * 6}
    (shutil.move if is_moved else shutil.copytree)(tmp_path / "topics/t", tmp_path / "topics/new")
    starts_tell(tmp_path, caplog, served, "foreign/new")
    assert not (tmp_path / "topics/new").exists()


def test_what_was_moved_back_is_served_and_told_no_more(tmp_path, caplog):
    closed(tmp_path)
    shutil.move(tmp_path / "topics/t", tmp_path / "topics/new")
    starts_tell(tmp_path, caplog, {}, "foreign/new")
    shutil.move(tmp_path / "quarantine/foreign/new", tmp_path / "topics/t")
    store = Store.open(tmp_path)
    assert messages_of(store) == {b"t": [b"t0"] * 6 + [b"t1"] * 6}
    assert store.foreign() == []
    store.close()
    assert findings(tmp_path) == []


def test_what_was_removed_is_told_no_more(tmp_path, caplog):
    closed(tmp_path)
    shutil.copytree(tmp_path / "topics/t", tmp_path / "topics/new")
    starts_tell(tmp_path, caplog, {b"t": [b"t0"] * 6 + [b"t1"] * 6}, "foreign/new")
    shutil.rmtree(tmp_path / "quarantine/foreign/new")
    assert Store.open(tmp_path).foreign() == []
    assert findings(tmp_path) == []


def test_files_of_the_same_name_that_come_again_do_not_replace_the_first(tmp_path):
    closed(tmp_path)
    for number in range(3):
        shutil.copytree(tmp_path / "topics/t", tmp_path / "topics/new")
        store = Store.open(tmp_path)
        assert len(store.foreign()) == number + 1
        store.close()
    assert {len(names_in(each)) for each in tmp_path.glob("quarantine/*/new")} == {6}


def test_a_topic_whose_segments_were_foreign_goes_on(tmp_path):
    closed(tmp_path)
    swap(*segment_paths(tmp_path))
    store = Store.open(tmp_path)
    newest = store.create_segment(b"t", NOW)
    newest.append([b"new"], NOW)
    store.close()
    assert messages_of(Store.open(tmp_path)) == {b"t": [b"new"]}


@pytest.mark.parametrize("is_repaired", [False, True])
def test_a_repair_moves_them_and_goes_on_telling(tmp_path, is_repaired):
    closed(tmp_path)
    swap(*segment_paths(tmp_path))
    for _ in range(2):
        if is_repaired:
            list(repair_segments(RealFiles.at(tmp_path)))
            assert len(findings(tmp_path)) == 1
        else:
            assert len(findings(tmp_path)) == 2
    assert is_repaired != bool(segment_paths(tmp_path))


@pytest.mark.parametrize("died_after", range(12))
def test_dying_while_they_are_moved_serves_nothing_of_them(tmp_path, died_after):
    """A kill comes after any of the steps."""
    closed(tmp_path, topics=(b"t",), counts=(3,))
    shutil.move(tmp_path / "topics/t", tmp_path / "topics/new")

    class Dying(RealFiles):
        left = died_after

        def _step(self):
            if self.left == 0:
                raise KeyboardInterrupt
            Dying.left -= 1

        def rename(self, path, new_path):
            self._step()
            super().rename(path, new_path)

        def make_folder(self, path):
            self._step()
            return super().make_folder(path)

        def sync_folder(self, path):
            self._step()
            super().sync_folder(path)

    files = Dying.at(tmp_path)
    with contextlib.suppress(KeyboardInterrupt):
        Store.open(files).close()
    del files
    store = Store.open(tmp_path)
    assert messages_of(store) == {}
    assert len(store.foreign()) == 1
    store.close()
    assert len(list(tmp_path.glob("quarantine/**/*_data*"))) == 1


# ---- what is none ------------------------------------------------------------------------------


def is_untouched(base, expected):
    store = Store.open(base)
    assert messages_of(store) == expected
    assert store.foreign() == []
    store.close()
    assert findings(base) == []


EXPECTED = {b"t": [b"t0"] * 6 + [b"t1"] * 6}


def test_a_base_that_was_copied_whole_is_sound(tmp_path):
    closed(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    is_untouched(tmp_path / "b", EXPECTED)


def test_the_same_topic_of_another_store_is_sound(tmp_path):
    closed(tmp_path / "a")
    Store.open(tmp_path / "b").close()
    shutil.copytree(tmp_path / "a/topics/t", tmp_path / "b/topics/t")
    is_untouched(tmp_path / "b", EXPECTED)


def test_with_the_events_lost_all_is_sound(tmp_path):
    closed(tmp_path)
    (tmp_path / "store.meta").unlink()
    is_untouched(tmp_path, EXPECTED)


def test_without_sums_files_are_taken_as_the_original_s(tmp_path):
    closed(tmp_path)
    for path in tmp_path.glob("topics/t/*_sum"):
        path.unlink()
    (tmp_path / "store.meta").unlink()
    shutil.move(tmp_path / "topics/t", tmp_path / "topics/new")
    is_untouched(tmp_path, {b"new": EXPECTED[b"t"]})


def test_a_folder_that_gets_our_name_for_the_topic_is_sound(tmp_path):
    """The original has made it: its name is UTF-8 twice."""
    topic = "ü".encode()
    original = topic.decode("latin-1")
    closed(tmp_path)
    shutil.move(tmp_path / "topics/t", tmp_path / "topics" / original)
    for path in tmp_path.glob("topics/*/*_sum"):
        path.unlink()
    store = Store.open(tmp_path, SegmentOptions(names="escape"))
    store.topics[topic][-1].unseal()
    store.topics[topic][-1].append([b"more"], NOW)
    store.close()
    (tmp_path / "topics" / original).rename(tmp_path / "topics/%C3%BC")
    for _ in range(2):
        store = Store.open(tmp_path, SegmentOptions(names="escape"))
        assert messages_of(store) == {topic: [*EXPECTED[b"t"], b"more"]}
        assert store.foreign() == []
        store.close()


@pytest.mark.parametrize("bit", range(0, SUMS.size_bytes * 8, 13))
def test_a_first_entry_with_a_wrong_bit_is_damage_and_nothing_is_moved(tmp_path, bit):
    closed(tmp_path, counts=(3,))
    [path] = tmp_path.glob("topics/t/*_sum")
    content = bytearray(path.read_bytes())
    content[FILE_HEADER_BYTES + bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    (tmp_path / "store.meta").unlink()
    store = Store.open(tmp_path)
    assert messages_of(store) == {b"t": [b"t0"] * 6}
    assert store.foreign() == []


@pytest.mark.parametrize("suffixes", [("_sum",), ("_index",), ("_seq",), ("_sum", "_seq")])
def test_swapped_files_beside_the_data_cost_no_message(tmp_path, suffixes):
    closed(tmp_path, put=(b"p" * 16, 0))
    one, other = segment_paths(tmp_path)
    swap(one, other, suffixes)
    store = Store.open(tmp_path)
    assert messages_of(store) == EXPECTED
    assert store.foreign() == []


@pytest.mark.parametrize("suffixes", [("_data",), ("_data", "_index")])
def test_data_that_changed_places_alone_is_not_served(tmp_path, suffixes):
    closed(tmp_path)
    one, other = segment_paths(tmp_path)
    swap(one, other, suffixes)
    assert findings(tmp_path)
    store = Store.open(tmp_path, SegmentOptions())
    for segment in store.topics[b"t"]:
        with pytest.raises(CorruptRecord):
            read_all(segment)
    store.close()
    assert findings(tmp_path)


@pytest.mark.parametrize("suffixes", [("_data", "_sum"), ("_data", "_index", "_sum")])
def test_data_that_came_with_its_sums_is_foreign(tmp_path, caplog, suffixes):
    closed(tmp_path, put=(b"p" * 16, 0))
    one, other = segment_paths(tmp_path)
    swap(one, other, suffixes)
    starts_tell(tmp_path, caplog, {}, "foreign/t")
