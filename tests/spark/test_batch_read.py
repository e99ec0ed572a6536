"""Topics as tables of a real Spark, over the socket and from the folder."""

from functools import partial

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit

from tests.broker.server_process import ServerProcess
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COUNT = 5000


@pytest.fixture(scope="module")
def server(tmp_path_factory, spark):
    """A server whose topic `t` has 50 segments, asleep, and `u` a single one."""
    folder = tmp_path_factory.mktemp("server") / "poe"
    options = {"count_limit": COUNT // 50, "check_interval": 0.01, "worker_timeout": 0.05}
    with ServerProcess(folder, **options) as server:
        server.folder = folder
        with server.connect() as client:
            for begin in range(0, COUNT, COUNT // 50):
                batch = [b"message %d" % n for n in range(begin, begin + COUNT // 50)]
                client.write("t", batch)
                wait_until(partial(is_rotated, client, begin), 20)
            client.write("u", [b"u1", b"u2"])
            wait_until(lambda: all(row["role"] == "h" for row in client.segments("t")[:-1]), 20)
        yield server


def is_rotated(client, begin):
    return client.segments("t")[-1]["count"] == 0 and len(client.segments("t")) == begin // 100 + 2


@pytest.fixture(params=["socket", "folder"])
def source(request, server):
    if request.param == "socket":
        return {"host": "127.0.0.1", "port": server.port}
    return {"path": server.folder}


def load(spark, source, schema=None, **options):
    reader = spark.read.format("poe").options(**source, **options)
    return (reader.schema(schema) if schema else reader).load()


def test_a_topic_of_fifty_hibernating_segments_is_read_back_complete(spark, server, source):
    with server.connect() as client:
        assert len(client.segments("t")) == 51
        ranges = client.read_ranges("t", 0, 2**56 - 1)
        pointers = [pointer for records in ranges for pointer in records.pointers.tolist()]
    rows = load(spark, source, topic="t").orderBy("pointer").collect()
    assert [row.pointer for row in rows] == pointers
    assert [bytes(row.message) for row in rows] == [b"message %d" % n for n in range(COUNT)]
    assert {row.topic for row in rows} == {"t"}


def test_columns_have_their_types_and_a_time_is_the_pointer(spark, source):
    table = load(spark, source, topic="u", includeSegment=True)
    assert table.schema.simpleString() == (
        "struct<topic:string,pointer:bigint,timestamp:timestamp,message:binary,ordinal:bigint,"
        "partition:int,key:binary,headers:map<string,binary>,segment:string>"
    )
    row = table.select(
        "*", F.unix_micros("timestamp").alias("micros"), F.col("message").cast("string").alias("s")
    ).first()
    assert row.micros == row.pointer
    assert row.s == "u1"
    assert row.segment.startswith("u/")


def test_a_query_without_a_filter_reads_all_after_one_with_it(spark, source):
    table = load(spark, source, topic="t")
    some = table.where(table.pointer > table.agg(F.min("pointer")).first()[0])
    assert some.count() == COUNT - 1
    assert table.count() == COUNT
    assert some.alias("a").join(table.alias("b"), "pointer").count() == COUNT - 1
    assert table.alias("b").join(some.alias("a"), "pointer", "left_anti").count() == 1


def test_filters_are_pushed_down_when_asked(spark, source, capsys):
    table = load(spark, source, topicPattern=".", filterPushdown=True)
    pointers = sorted(row.pointer for row in table.where("topic = 't'").collect())
    chosen = table.where(f"topic = 't' AND pointer > {pointers[7]} AND pointer <= {pointers[9]}")
    assert sorted(row.pointer for row in chosen.collect()) == pointers[8:10]
    chosen.explain()
    assert "Filter (" not in capsys.readouterr().out
    assert chosen.rdd.getNumPartitions() == 1
    moment = F.timestamp_micros(F.lit(pointers[8]))
    assert table.where((F.col("timestamp") == moment) & (F.col("topic") == "t")).count() == 1


def test_a_schema_of_fewer_columns_reads_no_others(spark, source):
    table = load(spark, source, "pointer bigint", topic="t")
    assert table.columns == ["pointer"]
    assert table.agg(F.countDistinct("pointer")).first()[0] == COUNT


def test_small_partitions_read_the_same(spark, source):
    table = load(spark, source, topic="t", targetPartitionBytes=600_000)
    assert table.rdd.getNumPartitions() > 4
    assert table.select(F.countDistinct("message")).first()[0] == COUNT


def test_topics_are_tables_of_sql(spark, server):
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW u USING poe "
        f"OPTIONS (host '127.0.0.1', port '{server.port}', topic 'u')"
    )
    rows = spark.sql("SELECT string(message) AS text FROM u ORDER BY pointer").collect()
    assert [row.text for row in rows] == ["u1", "u2"]


def test_a_wrong_option_is_an_error_that_lists_the_right_ones(spark, server):
    with pytest.raises(PySparkException, match="option 'tpoic' is not known; use one of archive, "):
        load(spark, {"path": server.folder}, tpoic="t").collect()


def test_a_schema_that_cannot_be_is_an_error_that_shows_the_right_one(spark, server):
    with pytest.raises(PySparkException, match="use some of topic string, pointer bigint"):
        load(spark, {"path": server.folder}, "key string", topic="t").collect()


def test_an_unknown_topic_is_an_error(spark, source):
    with pytest.raises(PySparkException, match="topic 'nobody' is not known"):
        load(spark, source, topic="nobody").collect()


def test_nothing_is_read_where_nothing_matches(spark, source):
    assert load(spark, source, topic="t", startingPointer="latest").count() == 0
    assert load(spark, source, topicPattern="nobody").count() == 0
