"""A node's copy of a replicated topic, after whatever may befall it: the same as all others."""

import contextlib
import shutil
from pathlib import Path

import pytest

from poe.broker.requests.log_messages import LOGS, DescribeLogs
from poe.errors import CorruptRecord, NoQuorum
from poe.protocol import PutId
from poe.storage.segment.producers import PRODUCERS_COUNT_MAX
from tests.cluster.log.replicated import replicated
from tests.waiting import wait_until

P = b"p" * 16


def fill(nodes, count=60, size=10, names="abc"):
    return [
        nodes[names[number % len(names)]].put_many("t", [b"%d" % number] * size)
        for number in range(count)
    ]


def is_sound(nodes, name):
    nodes.wait_all(lambda each: nodes.state(each) == "following")
    return all(not row["differing"] and not row.get("error") for row in nodes.verify(name)[b"t"])


def test_a_node_that_was_away_goes_on_from_the_stream(three):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three)
    three.stop("c")
    fill(three, names="ab")
    three.start("c")
    three.wait_same()
    assert is_sound(three, "a")
    assert "copy_fetched" not in {each.kind for each in three["c"].events().events}


def test_a_node_that_was_away_for_too_long_fetches_what_is_missing(three):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three)
    three.stop("c")
    fill(three, names="ab")
    [stream] = three.streams.values()
    stream.forget_to(stream.last_place - 3)
    three.start("c")
    three.wait_same()
    assert is_sound(three, "c")
    three["c"].put("t", b"on")
    three.wait_same()
    assert "copy_fetched" in {each.kind for each in three["c"].events().events}


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", [0, 50, 120])
def test_a_wiped_node_gets_all_back(three, forgotten):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three, 120)
    three.stop("c")
    three.wipe("c")
    [stream] = three.streams.values()
    stream.forget_to(forgotten)
    three.start("c")
    three.wait_same()
    assert is_sound(three, "a")
    assert three.values("c") == three.values("a")


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_folder_of_yesterday_becomes_what_the_others_have(three, tmp_path, is_forgotten):
    """Put back from a backup, with topics in it that are gone, or others of their names."""
    for name in ("t", "gone", "anew"):
        three["a"].create_topic(name, replicas=3, count_limit=100)
        three["a"].put(name, b"of yesterday")
    first = fill(three, 20)[15]
    three.wait_same()
    three.stop("c")
    shutil.copytree(tmp_path / "c", tmp_path / "backup")
    three.start("c")
    wait_until(lambda: three.state("c") == "following", 60)
    fill(three, 40)
    three["b"].control("trim", topic=b"t", pointer=first)
    for deleted in (b"gone", b"anew"):
        three["a"].control("delete", topic=deleted)
    three["a"].create_topic("anew", replicas=3)
    three["c"].put("anew", b"of today")
    three.stop("c")
    three.wipe("c")
    shutil.copytree(tmp_path / "backup", tmp_path / "c")
    if is_forgotten:
        for stream in three.streams.values():
            stream.forget_to(stream.last_place - 1)
    three.start("c")
    wait_until(lambda: three.state("c") == "following" and three.are_same(), 60)
    wait_until(lambda: b"gone" not in three["c"].topics() and three.are_same("anew"), 60)
    assert three.values("c") == three.values("a")
    assert three.values("c", "anew") == [b"of today"]
    assert is_sound(three, "c")


def test_what_the_last_node_has_is_read_there_and_put_onto_a_new_cluster(three, tmp_path):
    """Two of three are lost for good; nothing is agreed on any more, and nothing is altered."""
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three, 20)
    three.wait_same()
    for name in "abc":
        three.stop(name)
    three.log.cut("a")
    three.start("a")
    left = three.values("a")
    assert len(left) == 200
    with pytest.raises(NoQuorum):
        three["a"].put("t", b"refused")
    with replicated(tmp_path / "new") as new:
        new["b"].create_topic("t", replicas=3)
        new["b"].put_many("t", left)
        new.wait_same()
        assert new.values("c") == left


def fetch_all(three):
    """Have a node lose its folder, and fetch all from the others: the stream has forgotten it."""
    three.stop("c")
    three.wipe("c")
    [stream] = three.streams.values()
    stream.forget_to(stream.last_place)
    three.start("c")
    three.wait_same()


def test_who_has_fetched_knows_producers_as_the_others_do(three):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three, 20)
    pointer = three["a"].put_many("t", [b"x"], PutId(P, 4, 0))
    fetch_all(three)
    assert three["c"].put_many("t", [b"x"], PutId(P, 4, 0)) == pointer
    three["c"].put_many("t", [b"y"], PutId(P, 4, 1))
    three.stop("c")
    three.start("c")
    three["a"].put_many("t", [b"z"], PutId(P, 4, 2))
    three.wait_same()
    assert three.values("c")[-3:] == [b"x", b"y", b"z"]


@pytest.mark.slow
def test_who_has_fetched_knows_as_many_producers_as_the_others_do(three):
    """More than a new segment would be told of: all copies answer the next put alike."""
    three["a"].create_topic("t", replicas=3)
    names = [b"%016d" % number for number in range(PRODUCERS_COUNT_MAX + 1)]
    for name in names:
        three["a"].put_many("t", [name], PutId(name, 0, 0))
    three.wait_same()
    fetch_all(three)
    three["b"].put_many("t", [b"next"], PutId(names[0], 0, 1))
    first = three["a"].put_many("t", [names[0]], PutId(names[0], 0, 0))
    wait_until(lambda: three.values("c")[-1] == b"next", 10)
    assert three["c"].put_many("t", [names[0]], PutId(names[0], 0, 0)) == first
    assert three.are_same()


def test_what_is_trimmed_elsewhere_while_a_node_is_away_is_not_kept_there(three):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    pointers = fill(three)
    three.stop("c")
    fill(three, names="ab")
    three["a"].control("trim", topic=b"t", pointer=pointers[25])
    [stream] = three.streams.values()
    stream.forget_to(stream.last_place)
    three.start("c")
    three.wait_same()
    assert len(three.files("c")) == len(three.files("a"))


def test_without_its_receipts_a_copy_is_not_trusted(three):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three)
    three.stop("c")
    for path in (three.folder / "c/topics/t").glob("*_seq"):
        path.unlink()
    three.start("c")
    three["a"].put("t", b"on")
    three.wait_same()
    assert is_sound(three, "c")


def test_a_copy_of_which_all_files_are_gone_is_made_anew(three):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three)
    three.stop("c")
    for path in (three.folder / "c/topics/t").glob("*"):
        path.unlink()
    three.start("c")
    three.wait_same()
    assert is_sound(three, "c")


def lose_segment(three, at, name="c"):
    """Have a node that is stopped lose the files of a segment of its copy; return what names it."""
    folder = three.folder / name / "topics/t"
    lost = sorted(folder.glob("*_data"))[at].name.partition("_")[0]
    for path in folder.glob(f"{lost}_*"):
        path.unlink()
    return int(lost)


@pytest.mark.parametrize("forgotten", [0, 50])
@pytest.mark.parametrize("at", [1, -2])
def test_a_copy_that_has_lost_a_segment_among_others_is_made_anew(three, at, forgotten):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three)
    three.wait_same()
    three.stop("c")
    lose_segment(three, at)
    [stream] = three.streams.values()
    stream.forget_to(forgotten)
    three.start("c")
    three.wait_same()
    assert is_sound(three, "c")


def are_open(folder):
    """Whether this process has a file below a folder open."""
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add(str(path.readlink()))
    return any(each.startswith(f"{folder}/") for each in found)


def test_a_copy_that_lost_its_files_while_it_slept_is_made_anew(tmp_path):
    with replicated(tmp_path, worker_timeout=0.1) as three:
        three["a"].create_topic("t", replicas=3, count_limit=100)
        fill(three)
        three.wait_same()
        folder = tmp_path / "c/topics/t"
        wait_until(lambda: not are_open(folder), 10)
        shutil.rmtree(folder)
        three["a"].put("t", b"on")
        three.wait_same()
        assert is_sound(three, "c")
        assert three.values("c")[-1] == b"on"


def damage(three, name="c", at=0):
    """Change a byte of a data file of a node; return what names the segment."""
    path = sorted((three.folder / name / "topics/t").glob("*_data"))[at]
    with path.open("r+b") as file:
        middle = path.stat().st_size // 2
        file.seek(middle)
        [byte] = file.read(1)
        file.seek(middle)
        file.write(bytes([byte ^ 1]))
    return int(path.name.partition("_")[0])


def test_what_a_damaged_copy_does_not_give_is_fetched_from_another_one(three):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three)
    three.wait_same()
    three.values("a")  # from then on it takes its data for sound
    before = three.files("b")
    damage(three, "a", at=1)
    three.stop("c")
    three.wipe("c")
    [stream] = three.streams.values()
    stream.forget_to(stream.last_place)
    three.start("c")
    wait_until(lambda: three.files("c") == before, 10)


@pytest.mark.parametrize("at", [0, 1, -1])
def test_a_damaged_file_is_found_by_comparing_and_made_anew_when_it_is_read(three, at):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three)
    three.wait_same()
    three.stop("c")
    damaged = damage(three, at=at)
    three.start("c")
    wait_until(lambda: three.state("c") == "following", 10)
    [row] = [each for each in three.verify("a")[b"t"] if each["node"] == "c"]
    assert row["differing"] == [damaged] or three.are_same()
    with contextlib.suppress(CorruptRecord):
        three.values("c")
    three.wait_same()
    wait_until(lambda: three.values("c") == three.values("a"), 10)


def damage_one(three):
    """Damage the copy of a node, which is stopped, and have the stream forget what it had."""
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three)
    three.wait_same()
    for stream in three.streams.values():
        stream.forget_to(stream.last_place - 1)
    three.stop("c")
    damage(three)


def test_a_damaged_copy_that_no_other_node_has_is_kept(three):
    damage_one(three)
    before = three.files("c")
    three.stop("a")
    three.stop("b")
    three.start("c")
    with pytest.raises(CorruptRecord):
        three.values("c")
    three["c"].system.call(LOGS, DescribeLogs())  # behind what the replica has been told
    assert three.files("c") == before
    three.start("a")
    wait_until(lambda: three.state("c") == "following", 10)
    with contextlib.suppress(CorruptRecord):
        three.values("c")
    three.wait_same()


def test_a_node_alone_that_has_all_of_the_stream_makes_its_copy_anew(three):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three)
    three.wait_same()
    before = three.files("a")
    three.stop("c")
    three.stop("b")
    three.stop("a")
    for path in (three.folder / "a/topics/t").glob("*_seq"):
        path.unlink()
    three.start("a")
    wait_until(lambda: three.files("a") == before, 20)


def stall_one(three):
    """Have a node, which reaches no other one, find that its copy is damaged."""
    damage_one(three)
    three.start("c")
    wait_until(lambda: three.state("c") == "following", 10)
    three.log.cut("c")
    with pytest.raises(CorruptRecord):
        three.values("c")
    wait_until(lambda: three.state("c") == "stalled", 10)


def test_damage_is_not_forgotten_while_no_other_node_is_reached(three):
    stall_one(three)
    three.log.heal("c")
    three.wait_same()


@pytest.mark.slow
def test_of_two_copies_that_are_known_to_be_damaged_none_is_given_up(three, caplog):
    damage_one(three)
    damage(three, "b", at=1)
    before = three.files("a")
    three.start("c")
    three.wait_all(lambda name: three.state(name) == "following")
    for name in "bc":
        three.log.cut(name)
        with pytest.raises(CorruptRecord):
            three.values(name)
    wait_until(lambda: {three.state(name) for name in "bc"} == {"stalled"}, 10)
    three.stop("a")
    kept = {name: three.files(name) for name in "bc"}
    for name in "bc":
        three.log.heal(name)
    wait_until(lambda: caplog.text.count("no other node has more of it") >= 2, 30)
    assert {name: three.files(name) for name in "bc"} == kept
    three.start("a")
    wait_until(lambda: three.files("b") == three.files("c") == before, 20)
