"""Pipelines that run: real queries under real supervision, with files and Spark's own sources."""

import logging
import os
import threading

import pytest

from poe.errors import InvalidPipeline, PipelineRunning
from poe.protocol.pipeline_report import PipelineReport, QueryReport
from poe.spark import Pipeline
from poe.spark.pipeline import load_pipeline
from poe.spark.pipeline.runner import RunOptions, run_pipeline
from tests.broker.nodes import read_by_next
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def run(spark, node):
    """Run a pipeline to its end, and return its queries by name."""

    def to_its_end(pipeline, **options):
        host, port = node.address or ("127.0.0.1", 1)
        options = {"server": {"host": host, "port": str(port)}, **options}
        logging.getLogger("poe").setLevel(logging.CRITICAL)
        try:
            ended = run_pipeline(pipeline, RunOptions(**options), spark)
        finally:
            logging.getLogger("poe").setLevel(logging.NOTSET)
        return {query.name: query for query in ended.queries}

    return to_its_end


def lines_pipeline(tmp_path, count=6):
    """A pipeline over a folder of text files, one line each."""
    (tmp_path / "in").mkdir()
    for number in range(count):
        path = tmp_path / "in" / f"{number}.txt"
        path.write_text(f"line {number}\n")
        os.utime(path, (number, number))  # Spark reads the oldest first
    pipeline = Pipeline(
        "lines", checkpoint=tmp_path / "state", intensity=2, period_s=100, backoff_s=0.01
    )
    folder, options = str(tmp_path / "in"), {"maxFilesPerTrigger": 2}
    pipeline.source("lines", format="text", schema="value STRING", path=folder, options=options)
    return pipeline


class Collects:
    """foreachBatch: keeps rows by batch, and fails as often as it is told."""

    def __init__(self, failures=0):
        self.failures = failures
        self.batches = {}

    def __call__(self, batch, number):
        if number == 1 and self.failures:
            self.failures -= 1
            broken = "broken on purpose"
            raise ValueError(broken)
        assert number not in self.batches
        self.batches[number] = sorted(row.value for row in batch.collect())


LINES = {0: ["line 0", "line 1"], 1: ["line 2", "line 3"], 2: ["line 4", "line 5"]}


def test_a_query_that_fails_goes_on_from_its_checkpoint(tmp_path, run):
    pipeline = lines_pipeline(tmp_path)
    collects = Collects(failures=2)
    pipeline.sink("out", takes="lines", function=collects)
    query = run(pipeline, available_now=True)["out"]
    assert (query.state, query.restarts) == ("done", 2)
    assert "ValueError: broken on purpose" in query.last_error
    assert collects.batches == LINES


def test_a_query_that_fails_for_ever_is_given_up_and_its_siblings_go_on(tmp_path, run, node):
    pipeline = lines_pipeline(tmp_path)
    broken, sound = Collects(failures=1000), Collects()
    pipeline.sink("broken", takes="lines", function=broken)
    pipeline.sink("sound", takes="lines", function=sound)
    queries = run(pipeline, available_now=True)
    assert (queries["broken"].state, queries["broken"].restarts) == ("failed", 2)
    assert 1000 - broken.failures == 3
    assert (queries["sound"].state, queries["sound"].restarts) == ("done", 0)
    assert (sound.batches, list(broken.batches)) == (LINES, [0])
    # The broker has had the last word, too.
    (told,) = node.control("pipelines")
    assert (told["name"], told["state"]) == ("lines", "failed")
    assert [each["state"] for each in told["queries"]] == ["failed", "done"]
    assert "broken on purpose" in told["queries"][0]["last_error"]


def test_a_pipeline_runs_until_somebody_asks_it_to_stop(tmp_path, run, node):
    pipeline = Pipeline("ticks", checkpoint=tmp_path / "state")
    pipeline.source("ticks", format="rate", options={"rowsPerSecond": 10})
    pipeline.sink("out", takes="ticks", format="noop", trigger="100 milliseconds")
    ended = {}
    driver = threading.Thread(target=lambda: ended.update(run(pipeline)))
    driver.start()
    try:
        wait_until(lambda: told_batch(node) >= 3, 60)
        with pytest.raises(PipelineRunning, match="'ticks' runs already, as process"):
            claim_as_another(node)
    finally:
        node.control("pipeline_stop", name="ticks")
        driver.join()
    assert ended["out"].state == "stopped"
    assert node.control("pipelines")[0]["state"] == "stopped"


def told_batch(node):
    return max((each["queries"][0]["batch"] for each in node.control("pipelines")), default=-1)


def claim_as_another(node):
    query = QueryReport(name="out", state="running")
    report = PipelineReport(name="ticks", host="elsewhere", pid=1, queries=(query,))
    node.control("pipeline_report", report=report.as_map())


def test_without_a_broker_a_pipeline_runs_all_the_same(tmp_path, run, node):
    pipeline = lines_pipeline(tmp_path)
    collects = Collects()
    pipeline.sink("out", takes="lines", function=collects)
    node.stop()
    assert run(pipeline, available_now=True)["out"].state == "done"
    assert collects.batches == LINES


def test_topics_are_read_joined_and_written_and_lag_is_told(tmp_path, run, node):
    pipeline = Pipeline("topics", checkpoint=tmp_path / "state", backoff_s=0.01)
    earliest = {"startingPointer": "earliest"}
    parse = {"format": "json", "schema": "key STRING, n INT"}
    for side in ("left", "right"):
        pipeline.source(f"{side}_side", topic=side, options=earliest, parse=parse)
    pipeline.step(
        "joined",
        sql="""
            SELECT to_json(struct(key, l.n AS l, r.n AS r)) AS message
            FROM left_side l JOIN right_side r USING (key)
        """,
    )
    pipeline.sink("out", takes="joined", topic="joined")
    node.put_many("left", [b'{"key": "a", "n": 1}', b'{"key": "b", "n": 2}', b"none"])
    node.put_many("right", [b'{"key": "b", "n": 3}'])
    query = run(pipeline, available_now=True)["out"]
    assert (query.state, query.last_error, query.lag_s) == ("done", "", 0.0)
    node.put_many("right", [b'{"key": "a", "n": 4}'])
    run(pipeline, available_now=True)
    assert [message for _, message in read_by_next(node, b"joined")] == [
        b'{"key":"b","l":2,"r":3}',
        b'{"key":"a","l":1,"r":4}',
    ]


TOML = '''
[sources.log]
format = "text"
schema = "value STRING"
path = "in"
watermark = ["time", "10 minutes"]

[sources.log.parse]
format = "regex"
column = "value"
pattern = '(?P<time>[^,]+),(?P<key>[a-z]+),(?P<n>[0-9]+)'
schema = "time TIMESTAMP, n INT"
drop_invalid = true

[sources.names]
format = "text"
schema = "value STRING"
path = "names"
parse = { format = "json", column = "value", schema = "key STRING, name STRING" }

[steps.sums]
sql = """
    SELECT window(time, '10 minutes').start AS start, key, sum(n) AS total
    FROM log GROUP BY window(time, '10 minutes'), key
"""

[steps.named]
function = "functions.py:named"

[sinks.sums]
takes = "sums"
format = "parquet"
path = "sums"

[sinks.named]
takes = "named"
format = "parquet"
path = "named"
partition_by = "name"
'''

FUNCTIONS = """
def named(log, names):
    return log.join(names, "key")
"""


def toml_pipeline(tmp_path):
    """A file with windows, a watermark, parsing and a join; and what it reads."""
    for folder in ("in", "names"):
        (tmp_path / folder).mkdir()
    log = [
        "2026-01-01 00:01:00,a,1",
        "2026-01-01 00:02:00,a,2",
        "no row",
        "2026-01-01 00:12:00,b,5",
    ]
    (tmp_path / "in" / "1.txt").write_text("\n".join(log))
    (tmp_path / "names" / "1.txt").write_text('{"key": "a", "name": "Anna"}\n')
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "p.toml").write_text(TOML)
    return load_pipeline(tmp_path / "p.toml")


def test_a_toml_file_with_windows_and_a_join_writes_parquet_beside_itself(tmp_path, run, spark):
    pipeline = toml_pipeline(tmp_path)
    queries = run(pipeline, available_now=True)
    assert {query.state for query in queries.values()} == {"done"}
    named = spark.read.parquet(str(tmp_path / "named")).select("name", "n").collect()
    assert sorted(map(tuple, named)) == [("Anna", 1), ("Anna", 2)]
    # A window is written when the watermark has passed its end: later than anything read so far.
    later = "2026-01-01 02:00:00,c,1"
    (tmp_path / "in" / "2.txt").write_text(later)
    run(pipeline, available_now=True)
    sums = spark.read.parquet(str(tmp_path / "sums")).select("key", "total").collect()
    assert sorted(map(tuple, sums)) == [("a", 3), ("b", 5)]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"sql": "SELEC 1 FROM lines"}, "steps.wrong: [PARSE_SYNTAX_ERROR]"),
        ({"sql": "SELECT missing FROM lines"}, "steps.wrong: [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ({"function": lambda lines: 1}, "steps.wrong: TypeError: its function returned int"),
        ({"function": lambda lines: lines.x}, "steps.wrong: [ATTRIBUTE_NOT_SUPPORTED]"),
    ],
)
def test_what_spark_refuses_is_told_with_its_place_before_anything_runs(tmp_path, run, wrong, told):
    pipeline = lines_pipeline(tmp_path)
    pipeline.step("wrong", **wrong)
    pipeline.sink("sound", takes="lines", format="parquet", path=str(tmp_path / "out"))
    pipeline.sink("out", takes="wrong", format="console")
    with pytest.raises(InvalidPipeline) as raised:
        run(pipeline)
    assert str(raised.value).startswith(told)
    assert "JVM" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_a_sink_that_spark_refuses_is_told_with_its_place(tmp_path, run):
    pipeline = lines_pipeline(tmp_path)
    pipeline.sink("out", takes="lines", topic="t")
    with pytest.raises(InvalidPipeline, match=r"^sinks.out: TypeError: a topic needs a column mes"):
        run(pipeline)
    pipeline.sinks.clear()
    pipeline.step("more", sql="SELECT value AS message, 1 AS more FROM lines")
    pipeline.sink("out", takes="more", topic="t")
    with pytest.raises(InvalidPipeline, match=r"^sinks.out: RowsRefused: column 'more' would be "):
        run(pipeline)
    pipeline.sinks.clear()
    pipeline.sink("out", takes="lines", format="console", trigger="soon")
    with pytest.raises(InvalidPipeline, match=r"^sinks\.out: .*soon"):
        run(pipeline)
