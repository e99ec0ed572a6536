"""Topics in the console: what their partitions hold, and one that cannot be served."""

import pytest

from poe.node import Node
from tests.gateway.console.conftest import Shown


def test_a_topic_of_several_partitions_is_told_with_all_that_they_hold(console, topic):
    console.node.create_topic(topic, partitions=3)
    console.node.put(f"{topic}-0", b"x")
    console.node.put_many(f"{topic}-2", [b"y", b"z"])
    reply = console.http.get(f"topics/{topic}")
    assert reply.status_code == 200, reply.text
    found = reply.json()
    assert [each["messages"] for each in found["partitions"]] == [1, 0, 2]
    assert [each["oldest"] == "0" for each in found["partitions"]] == [False, True, False]
    assert [each["newest"] == "0" for each in found["partitions"]] == [False, True, False]
    assert [each["messages"] for each in found["segments"]] == [1, 2]
    assert found["segments_total"] == 2


@pytest.mark.slow
def test_a_topic_that_is_out_of_service_says_so_beside_the_others(tmp_path):
    with Node(dir=tmp_path, port=0, names="escape") as node:
        for name in ("sound", "not so plain"):
            node.put(name, b"x")
    with Node(dir=tmp_path, port=0) as node, Shown(node) as console:
        reply = console.http.get("topics")
        assert reply.status_code == 200, reply.text
        rows = {each["name"]: each for each in reply.json()["rows"]}
        assert (rows["sound"]["messages"], rows["sound"]["error"]) == (1, "")
        assert "names to escape" in rows["not so plain"]["error"]
