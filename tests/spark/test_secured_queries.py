"""Real queries at a node with users: they get in, go on with another token, or say why not."""

import pytest
from pyspark.errors import PySparkException

from tests.broker.nodes import read_by_next
from tests.spark.secured import SecuredNode
from tests.spark.test_grants import STAGING
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

DEADLINE_S = 60


@pytest.fixture
def secured(tmp_path, certificates):
    """A node where `flow` goes from `in` to `out`, and `reader` may not write."""
    node = SecuredNode(tmp_path, certificates)
    to_out = [("write", {"topics": "out"}), ("create", {"topics": "out"})]
    own = [(each, {"prefixes": "poe.staging.flow."}) for each, _ in STAGING]
    node.add("flow", [("read", {"topics": "in out"}), *to_out, *own])
    node.add("reader", [("read", {"topics": "in"}), *STAGING])
    node.start()
    node.node.put_many("in", [b"1", b"2"])
    yield node
    node.stop()


@pytest.fixture
def start(spark, secured, tmp_path):
    """Start a query from `in` to `out` in the name of a user; it is stopped at the end."""
    queries = []

    def started(user):
        stream = spark.readStream.format("poe").options(**secured.options(user), topic="in").load()
        writer = stream.select("message").writeStream.format("poe")
        writer = writer.options(**secured.options(user), topic="out", stagingPrefix=f"{user}.")
        queries.append(writer.option("checkpointLocation", str(tmp_path / "state")).start())
        return queries[-1]

    yield started
    for query in queries:
        query.stop()


def has(node, *messages):
    """Tell whether that is what `out` holds."""
    is_made = b"out" in node.node.topics()
    found = read_by_next(node.node, "out") if is_made else []
    return [message for _, message in found] == list(messages)


def test_tables_are_read_and_written_by_who_may(spark, secured):
    options = secured.options("flow")
    rows = spark.read.format("poe").options(**options, topic="in").load()
    writer = rows.select("message").write.format("poe").options(**options, topic="out")
    writer.option("stagingPrefix", "flow.").mode("append").save()
    assert has(secured, b"1", b"2")
    options = secured.options("reader")
    writer = rows.select("message").write.format("poe").options(**options, topic="out")
    with pytest.raises(PySparkException, match="not authorized to write topic 'out'"):
        writer.mode("append").save()


def test_a_stream_goes_on_with_the_token_that_has_taken_the_place_of_another(
    start, secured, tmp_path
):
    query = start("flow")
    wait_until(lambda: has(secured, b"1", b"2"), DEADLINE_S)
    old = secured.users.users["flow"].copy()
    new = tmp_path / "new"
    new.write_text(secured.users.token("flow", "second"))
    secured.reload()
    new.replace(tmp_path / "flow")
    secured.users.users["flow"] = [each for each in secured.users.users["flow"] if each not in old]
    assert secured.reload()["ended_count"], "nobody was connected by the old token"
    secured.node.put("in", b"3")
    wait_until(lambda: has(secured, b"1", b"2", b"3") or not query.isActive, DEADLINE_S)
    assert query.exception() is None
    assert has(secured, b"1", b"2", b"3")


def test_a_query_that_may_not_write_fails_at_once_and_says_what_it_lacks(start):
    query = start("reader")
    with pytest.raises(PySparkException, match="not authorized to write topic 'out'"):
        query.awaitTermination(DEADLINE_S)
    assert not query.isActive


def test_a_query_whose_token_is_taken_back_fails_at_once_and_says_so(start, secured):
    query = start("flow")
    wait_until(lambda: has(secured, b"1", b"2"), DEADLINE_S)
    secured.users.remove("flow")
    secured.reload()
    with pytest.raises(PySparkException, match="authentication failed"):
        query.awaitTermination(DEADLINE_S)
    assert not query.isActive
