"""Whatever is cut off or changed, good records are read, damage is told, and writing goes on.

All cuts and flips are tried by the scenarios `slab-torn` and `slab-flips` of torture.
"""

import os
import random
import shutil

import pytest

from poe.storage.formats.hashed import FILE_HEADER_BYTES
from poe.storage.slab_log import Reader, Writer
from tests.storage.segments import some_of
from tests.storage.slab_log.logs import (
    flip,
    messages,
    read_all,
    read_past_damage,
    record,
    slab_of,
    slabs_in,
    sum_of,
    write_foreign,
    write_log,
)

ENTRY_BYTES = 48

BATCHES = [messages(4), messages(1, 4), messages(6, 5)]
ALL = messages(11)
NEW = messages(3, 100)


def is_subsequence(some, all_):
    rest = iter(all_)
    return all(each in rest for each in some)


def crashed_log(path, batches=BATCHES):
    """A log whose writer died after its last flush."""
    writer = Writer(path)
    for batch in batches:
        writer.write_many(batch)
        writer.flush()
    writer.write(b"never flushed")


def append(path, contents):
    with Writer(path) as writer:
        address = writer.write_many(contents)[0]
    assert list(Reader(path, address)) == contents


@pytest.mark.parametrize("make", [crashed_log, lambda path: write_log(path, BATCHES)])
def test_cut_at_any_byte_of_the_slab_whole_records_stay_and_writing_goes_on(tmp_path, make):
    make(tmp_path / "whole")
    content = slab_of(tmp_path / "whole").read_bytes()
    ends = [len(b"".join(map(record, ALL[:count]))) for count in range(len(ALL) + 1)]
    assert ends[-1] == len(content)
    for cut in some_of(len(content)):
        path = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", path)
        os.truncate(slab_of(path), cut)
        whole_count = sum(end <= cut for end in ends[1:])
        found, damages = read_past_damage(path)
        assert found == ALL[:whole_count]
        assert bool(damages) == (whole_count < len(ALL))
        append(path, NEW)
        assert read_all(path) == ALL[:whole_count] + NEW
        shutil.rmtree(path)


def test_a_writer_tells_of_what_the_newest_slab_has_lost(tmp_path, caplog):
    write_log(tmp_path, BATCHES)
    Writer(tmp_path).close()
    assert caplog.text == ""
    size = slab_of(tmp_path).stat().st_size
    os.truncate(slab_of(tmp_path), 30)
    Writer(tmp_path).close()
    assert f"ends at 30, its checksums at {size}: what was there is lost" in caplog.text
    caplog.clear()
    Writer(tmp_path).close()
    assert caplog.text == ""


@pytest.mark.parametrize("make", [crashed_log, lambda path: write_log(path, BATCHES)])
def test_cut_at_any_byte_of_the_side_file_nothing_is_lost(tmp_path, make):
    make(tmp_path / "whole")
    for cut in some_of(sum_of(tmp_path / "whole").stat().st_size):
        path = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", path)
        os.truncate(sum_of(path), cut)
        # Until a writer comes, what no entry covers may still be under way.
        assert is_subsequence(read_all(path), ALL)
        append(path, NEW)
        assert read_all(path) == ALL + NEW
        shutil.rmtree(path)


@pytest.mark.parametrize("slab_size_hint", [60, 10_000])
def test_flip_at_any_byte_of_a_slab_is_found_and_costs_one_batch_at_most(tmp_path, slab_size_hint):
    write_log(tmp_path / "whole", BATCHES, slab_size_hint=slab_size_hint)
    for start in slabs_in(tmp_path / "whole"):
        for at in some_of(slab_of(tmp_path / "whole", start).stat().st_size):
            path = tmp_path / "flipped"
            shutil.copytree(tmp_path / "whole", path)
            flip(slab_of(path, start), at)
            found, damages = read_past_damage(path)
            assert len(damages) == 1
            assert damages[0][0] <= start + at < damages[0][1]
            assert is_subsequence(found, ALL)
            lost = [each for each in ALL if each not in found]
            assert any(is_subsequence(lost, batch) for batch in BATCHES)
            append(path, NEW)
            assert read_past_damage(path) == (found + NEW, damages)
            shutil.rmtree(path)


@pytest.mark.parametrize("slab_size_hint", [60, 10_000])
def test_flip_at_any_byte_of_a_side_file_loses_nothing(tmp_path, slab_size_hint):
    write_log(tmp_path / "whole", BATCHES, slab_size_hint=slab_size_hint)
    for start in slabs_in(tmp_path / "whole"):
        for at in some_of(sum_of(tmp_path / "whole", start).stat().st_size):
            path = tmp_path / "flipped"
            shutil.copytree(tmp_path / "whole", path)
            flip(sum_of(path, start), at)
            assert read_all(path) == ALL
            append(path, NEW)
            assert read_all(path) == ALL + NEW
            shutil.rmtree(path)


def test_flip_at_any_byte_of_a_foreign_slab_never_gives_a_wrong_message(tmp_path):
    write_foreign(tmp_path / "whole", ALL)
    size = slab_of(tmp_path / "whole").stat().st_size
    last = size - len(record(ALL[-1]))
    for at in some_of(size):
        path = tmp_path / "flipped"
        shutil.copytree(tmp_path / "whole", path)
        flip(slab_of(path), at)
        found, damages = read_past_damage(path)
        assert is_subsequence(found, ALL)
        assert len(found) == len(ALL) - 1
        # A damaged last record cannot be told from one that is being written.
        assert len(damages) == (at < last)
        append(path, NEW)
        assert read_past_damage(path) == (found + NEW, damages)
        shutil.rmtree(path)


@pytest.mark.slow
def test_flips_and_cuts_everywhere_never_give_a_wrong_message(tmp_path):
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    for round_ in range(150):
        path = tmp_path / f"{round_}"
        contents = messages(40)
        write_log(path, [contents[:7], contents[7:30], contents[30:]], slab_size_hint=300)
        for _ in range(rng.randrange(1, 4)):
            files = sorted([*path.glob("*.slab"), *path.glob("*.sum")])
            victim = rng.choice([file for file in files if file.stat().st_size])
            if rng.random() < 0.3:
                os.truncate(victim, rng.randrange(victim.stat().st_size))
            else:
                flip(victim, rng.randrange(victim.stat().st_size), rng.randrange(1, 256))
        before, _ = read_past_damage(path)
        assert is_subsequence(before, contents)
        append(path, NEW)
        after, _ = read_past_damage(path)
        assert is_subsequence(before, after)
        assert is_subsequence(after, contents + NEW)


def test_zeros_behind_the_end_are_cut(tmp_path):
    write_log(tmp_path, [messages(5)])
    with slab_of(tmp_path).open("ab") as slab:
        slab.write(bytes(5000))
    assert read_all(tmp_path) == messages(5)
    append(tmp_path, NEW)
    assert read_all(tmp_path) == messages(5) + NEW


def test_records_swapped_within_a_batch_are_found_though_each_fits_its_hash(tmp_path):
    contents = [b"transfer 10", b"transfer 99", b"transfer 55"]
    write_log(tmp_path, [[b"before"], contents, [b"after"]])
    slab = slab_of(tmp_path)
    swapped = [contents[1], contents[0], contents[2]]
    slab.write_bytes(b"".join(map(record, [b"before", *swapped, b"after"])))
    found, damages = read_past_damage(tmp_path)
    assert found == [b"before", b"after"]
    assert damages == [(len(record(b"before")), slab.stat().st_size - len(record(b"after")))]


def test_a_slab_of_another_place_or_log_is_found(tmp_path):
    for name in ("one", "two"):
        write_log(tmp_path / name, [[b"%s %d" % (name.encode(), n)] for n in range(9)])
    shutil.copy(slab_of(tmp_path / "two"), slab_of(tmp_path / "one"))
    found, damages = read_past_damage(tmp_path / "one")
    assert (found, len(damages)) == ([], 9)
    # The side file of another place is not believed; the records have their own hashes.
    shutil.copy(slab_of(tmp_path / "two"), slab_of(tmp_path / "two", 500))
    shutil.copy(sum_of(tmp_path / "two"), sum_of(tmp_path / "two", 500))
    assert list(Reader(tmp_path / "two", 500)) == [b"two %d" % n for n in range(9)]


def test_an_entry_that_is_lost_or_swapped_breaks_the_chain_but_loses_nothing(tmp_path):
    write_log(tmp_path, BATCHES)
    content = sum_of(tmp_path).read_bytes()
    first, second = FILE_HEADER_BYTES, FILE_HEADER_BYTES + ENTRY_BYTES
    for changed in (
        content[:first] + content[second:],
        content[:first] + content[second : second + ENTRY_BYTES] + content[first:second],
    ):
        sum_of(tmp_path).write_bytes(changed)
        assert read_all(tmp_path) == ALL


def test_a_foreign_slab_with_damage_keeps_all_that_is_good_when_a_writer_takes_over(tmp_path):
    contents = messages(30)
    write_foreign(tmp_path, contents)
    at = len(b"".join(map(record, contents[:10])))
    flip(slab_of(tmp_path), at + 2)  # the length: it leads nowhere now
    before = slab_of(tmp_path).read_bytes()
    append(tmp_path, NEW)
    found, damages = read_past_damage(tmp_path)
    assert found == contents[:10] + contents[11:] + NEW
    assert damages == [(at, at + len(record(contents[10])))]
    assert slab_of(tmp_path).read_bytes().startswith(before)


def test_opening_changes_nothing_but_a_mark_where_nothing_is_wrong(tmp_path):
    write_log(tmp_path, BATCHES)
    before = slab_of(tmp_path).read_bytes()
    size = sum_of(tmp_path).stat().st_size
    Writer(tmp_path).close()
    assert slab_of(tmp_path).read_bytes() == before
    assert sum_of(tmp_path).stat().st_size == size + 2 * ENTRY_BYTES


def test_random_bytes_behind_the_end_of_a_foreign_slab_are_cut_in_a_moment(tmp_path):
    write_foreign(tmp_path, messages(5))
    with slab_of(tmp_path).open("ab") as slab:
        slab.write(random.Random(1).randbytes(300_000))
    append(tmp_path, NEW)
    assert read_all(tmp_path) == messages(5) + NEW
