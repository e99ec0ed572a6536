"""Copies are compared beside all else that their nodes do."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from poe.cluster.log.comparing import missing_segments
from poe.cluster.log.peer_frames import CopyDescription, CopySegment
from tests.cluster.log.test_copies import fill, lose_segment, stall_one
from tests.waiting import wait_until


@pytest.mark.slow
def test_nodes_that_compare_at_once_do_not_wait_for_each_other(three):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three)
    three.wait_same()
    with ThreadPoolExecutor(3) as pool:
        for told in pool.map(three.verify, "abc" * 10):
            assert len(told[b"t"]) == 2
            assert all(not row["differing"] and not row.get("error") for row in told[b"t"])


def test_puts_go_on_while_a_segment_is_read_to_be_compared(three):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three)
    three.wait_same()
    data = min((three.folder / "c" / "topics" / "t").glob("*_data"))
    kept = data.rename(data.with_name("kept"))
    os.mkfifo(data)  # whoever opens it to read waits for somebody who writes
    rows: list[dict[str, object]] = []
    thread = threading.Thread(target=lambda: rows.extend(three.verify("a")[b"t"]))
    thread.start()
    try:
        # It can be opened like this once somebody reads.
        opened: list[int] = []
        wait_until(lambda: is_read(data, opened), 10)
        for number, name in enumerate("abc" * 5):
            three[name].put("t", b"%d" % number)
        assert thread.is_alive()
    finally:
        data.unlink()
        kept.rename(data)
        os.close(opened[0])
    thread.join(20)
    assert [row["node"] for row in rows if row["differing"]] == ["c"]
    three.wait_same()


@pytest.mark.parametrize("name", ["a", "c"])
def test_a_segment_that_one_copy_has_lost_is_a_difference(three, name):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    fill(three)
    three.wait_same()
    three.stop("c")
    lost = lose_segment(three, 0)
    three.start("c")
    wait_until(lambda: three.state("c") == "following", 10)
    differing = {row["node"]: row["differing"] for row in three.verify(name)[b"t"]}
    expected = {"b": [], "c": [lost]} if name == "a" else {"a": [lost], "b": [lost]}
    assert differing == expected


def test_a_copy_that_cannot_be_told_of_keeps_no_others_from_being_compared(three):
    three["a"].create_topic("u", replicas=3)
    three["a"].put("u", b"x")
    stall_one(three)
    told = three.verify("c", None)
    assert [(row["node"], "is behind" in row["error"]) for row in told[b"t"]] == [
        ("this node", True)
    ]
    assert [(row["node"], row["error"]) for row in told[b"u"]] == [
        ("a", "it is not reached"), ("b", "it is not reached"),
    ]  # fmt: skip


def test_copies_of_which_one_is_behind_differ_only_where_both_should_have_a_segment():
    def copy(place, *timestamps):
        return CopyDescription(
            place, tuple(CopySegment(each, 0, 1, 1, each) for each in timestamps), ()
        )

    assert missing_segments(copy(9, 1, 2, 3), copy(9, 2, 3)) == {1}
    assert missing_segments(copy(9, 1, 2, 3, 4), copy(7, 2, 3)) == set()
    assert missing_segments(copy(9, 1, 2, 3, 4), copy(7, 1, 3)) == {2}
    assert (
        missing_segments(copy(9, 1, 2), copy(0))
        == missing_segments(copy(0), copy(9, 1, 2))
        == set()
    )
    assert missing_segments(copy(9, 1, 2), copy(9)) == {1, 2}


@pytest.mark.parametrize("name", ["a", "c"])
def test_what_is_trimmed_while_it_is_compared_does_not_differ(three, name):
    three["a"].create_topic("t", replicas=3, count_limit=100)
    pointers = fill(three)
    three.wait_same()
    topics = [three.folder / each / "topics" / "t" for each in "abc"]
    data = min((three.folder / name / "topics" / "t").glob("*_data"))
    data.unlink()
    os.mkfifo(data)
    rows: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: rows.extend(three.verify("a")[b"t"]))
    thread.start()
    opened: list[int] = []
    try:
        wait_until(lambda: is_read(data, opened), 10)
        three["b"].control("trim", topic=b"t", pointer=pointers[15])
        wait_until(lambda: not any((topic / data.name).exists() for topic in topics), 10)
    finally:
        os.close(opened[0])
    thread.join(20)
    assert [(row["differing"], row.get("error")) for row in rows] == [([], None)] * 2
    assert min(row["segments"] for row in rows) == len(three.files("b"))


def is_read(path, opened):
    try:
        opened.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
