"""What can be made from the data is mended; what cannot is marked and left where it is."""

from collections import Counter

import pytest

from poe.storage import (
    SegmentOptions,
    Store,
    check_events,
    check_segments,
    repair_segments,
    stopped_store,
)
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW, names_in, read_all

PATH = f"topics/t/{NOW}"
MESSAGES = [b"one", b"two", b"three"]


@pytest.fixture
def base(tmp_path):
    """A closed folder with one segment."""
    base = tmp_path / "data"
    store = Store.open(base)
    store.create_segment(b"t", NOW).append(MESSAGES, NOW)
    store.close()
    return base


def repaired(base):
    with stopped_store(base, for_repair=True) as files:
        return list(repair_segments(files))


def findings(base):
    with stopped_store(base) as files:
        damage = [finding for segment in check_segments(files) for finding in segment.damage]
        return [*check_events(files), *damage]


def messages_in(base):
    store = Store.open(base, SegmentOptions(verify="always"))
    found = [m for segment in store.topics.get(b"t", ()) for _, m in read_all(segment)]
    store.close()
    return found


def alter(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_a_sound_folder_is_left_as_it_is(base):
    before = {path: path.read_bytes() for path in base.rglob("*_*")}
    [segment] = repaired(base)
    assert (segment.count, segment.damage, segment.notes) == (3, [], [])
    assert {path: path.read_bytes() for path in base.rglob("*_*")} == before


@pytest.mark.parametrize("file", ["index", "sum"])
@pytest.mark.parametrize("change", ["flipped", "cut", "gone"])
def test_what_is_derived_is_made_anew(base, file, change):
    path = base / f"{PATH}_{file}"
    if change == "flipped":
        alter(path, 20)
    elif change == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.unlink()
    if (file, change) != ("sum", "gone"):
        assert findings(base)
    [segment] = repaired(base)
    assert segment.notes
    assert segment.damage == []
    assert findings(base) == []
    assert messages_in(base) == MESSAGES


def test_data_that_was_changed_is_marked_and_stays(base):
    path = base / f"{PATH}_data"
    alter(path, 12)
    content = path.read_bytes()
    [segment] = repaired(base)
    assert "are not what was written" in segment.damage[0]
    assert segment.notes == []
    assert path.read_bytes() == content
    assert findings(base)


def test_what_is_mended_is_told_beside_what_stays(base):
    alter(base / f"{PATH}_data", 12)
    alter(base / f"{PATH}_sum", 20)
    [segment] = repaired(base)
    assert any("are not what was written" in finding for finding in segment.damage)
    assert "repaired: the header of the sums is damaged, or of another segment" in segment.notes
    assert not any("are not what was written" in note for note in segment.notes)


def test_events_that_are_damaged_are_made_anew(base):
    alter(base / "store.meta", 70)
    assert "store.meta is damaged from offset 64" in findings(base)[0]
    repaired(base)
    assert findings(base) == []
    assert messages_in(base) == MESSAGES


def test_a_segment_that_is_gone_is_told_and_forgotten(base):
    for suffix in ("data", "index", "sum"):
        (base / f"{PATH}_{suffix}").unlink()
    assert "is gone, 3 messages" in findings(base)[0]
    [note] = repaired(base)
    assert "forgotten" in note.notes[0]
    assert findings(base) == []


def test_a_segment_without_data_is_forgotten_by_one_repair(base):
    (base / f"{PATH}_data").unlink()
    segment, events = repaired(base)
    assert segment.notes == ["repaired: the data file is missing"]
    assert "forgotten" in events.notes[0]
    assert findings(base) == []


@pytest.mark.parametrize("kind", ["index_new", "sum_new", "seq_new", "lock_new"])
def test_what_was_about_to_be_put_in_place_alone_is_no_segment(base, kind):
    """A power cut leaves it of a segment that was being made; the next start removes it."""
    left = base / f"topics/t/{NOW + 10}_{kind}"
    left.write_bytes(b"x")
    assert findings(base) == []
    [segment] = repaired(base)
    assert (segment.count, segment.damage, segment.notes) == (3, [], [])
    assert messages_in(base) == MESSAGES
    assert not left.exists()


def test_what_is_forgotten_is_known_as_removed(base):
    """Who reads on behind a pointer is told that something is gone."""
    for suffix in ("data", "index", "sum"):
        (base / f"{PATH}_{suffix}").unlink()
    repaired(base)
    store = Store.open(base)
    assert [each[1:] for each in store.removals.extents(b"t")] == [(NOW, NOW + 2)]
    assert store.removals.unknown_high == 0
    store.close()


def test_of_notes_that_are_damaged_a_repair_does_not_say_that_they_tell_all(base):
    store = Store.open(base)
    first = store.topics[b"t"][0]
    store.create_segment(b"t", NOW + 10).append(MESSAGES, NOW + 10)
    store.destroy_segment(b"t", first)
    store.close()
    alter(base / "store.removed", -1)
    for suffix in ("data", "index", "sum"):
        (base / f"topics/t/{NOW + 10}_{suffix}").unlink()
    repaired(base)
    store = Store.open(base)
    assert store.removals.unknown_high >= NOW + 12
    store.close()


def test_of_what_the_original_has_removed_nothing_is_known_after_a_repair(base):
    for path in base.glob("store.*"):
        path.unlink()
    repaired(base)
    store = Store.open(base)
    assert store.removals.unknown_high >= NOW + 2
    store.close()


def test_a_repair_takes_notes_that_are_lost_for_no_new_ones(base):
    store = Store.open(base)
    first = store.topics[b"t"][0]
    for number in (10, 20):
        store.create_segment(b"t", NOW + number).append(MESSAGES, NOW + number)
    store.destroy_segment(b"t", first)
    store.close()
    Store.open(base).close()
    (base / "store.removed").unlink()
    for suffix in ("data", "index", "sum"):
        (base / f"topics/t/{NOW + 10}_{suffix}").unlink()
    repaired(base)
    store = Store.open(base)
    assert store.removals.unknown_high >= NOW + 22
    store.close()


def test_a_note_that_a_power_cut_has_torn_is_no_damage_to_a_repair(base, caplog):
    store = Store.open(base)
    first = store.topics[b"t"][0]
    store.create_segment(b"t", NOW + 10).append(MESSAGES, NOW + 10)
    store.destroy_segment(b"t", first)
    del store
    (base / "store.lock").write_text("1\nanother boot\n")
    with (base / "store.removed").open("ab") as file:
        file.write(b"torn")
    caplog.clear()
    repaired(base)
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert not any("store.removed" in each for each in errors)
    store = Store.open(base)
    assert store.removals.unknown_high == 0
    assert [each[1:] for each in store.removals.extents(b"t")] == [(NOW, NOW + 2)]
    store.close()


def test_sums_that_are_lost_are_told_until_they_are_made_anew(base):
    (base / f"{PATH}_sum").unlink()
    assert findings(base) == [
        f"{PATH}_sum is lost; the next start makes it from the data, whatever that is"
    ]
    repaired(base)
    assert findings(base) == []
    assert messages_in(base) == MESSAGES


class Opened(FaultyFiles):
    """Counts how often each file is opened."""

    def __init__(self, files):
        super().__init__(files)
        self.counts: Counter[str] = Counter()

    def open(self, path, mode):
        self.counts[path] += 1
        return super().open(path, mode)


def test_a_repair_of_many_segments_reads_each_of_them_as_often_as_of_few(tmp_path):
    counts = []
    for segments_count in (2, 9):
        base = tmp_path / str(segments_count)
        store = Store.open(base)
        for number in range(segments_count):
            store.create_segment(b"t", NOW + 10 * number).append(MESSAGES, NOW + 10 * number)
        store.close()
        for path in base.glob("topics/t/*_sum"):
            path.unlink()
        with stopped_store(base, for_repair=True) as files:
            opened = Opened(files)
            assert not any(each.damage for each in repair_segments(opened))
        assert findings(base) == []
        counts.append(opened.counts[f"{PATH}_data"])
    assert counts[0] == counts[1]


def test_a_segment_of_an_earlier_version_gets_its_sums(base):
    (base / f"{PATH}_sum").unlink()
    (base / "store.meta").unlink()
    assert findings(base) == []
    repaired(base)
    assert sorted(names_in(base / "topics/t")) == [
        f"{NOW}_{suffix}" for suffix in ("data", "index", "sum")
    ]
    alter(base / f"{PATH}_data", 12)
    assert findings(base)
