"""One topic in the console: what its partitions hold."""


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
