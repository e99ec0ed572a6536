"""Copies are compared beside all else that their nodes do."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.cluster.log.test_copies import fill
from tests.waiting import wait_until


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


def is_read(path, opened):
    try:
        opened.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True
