"""Does all that Spark can with topics at a node with users, and fails in some ways.

    leak_program.py MASTER FOLDER READS WRITES WRONG

READS, WRITES and WRONG are options of the data source, in JSON: of who reads, of who writes, and of
who does not get in. What can be looked at of Spark's own is left in the folder.
"""

import contextlib
import json
import logging
import shutil
import sys
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from pyspark.errors import PySparkException

from poe.errors import PoeError
from poe.spark import Pipeline, session
from poe.spark.pipeline.runner import RunOptions, run_pipeline

_log = logging.getLogger(__name__)

LOGGING = """
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c: %m%n%ex
rootLogger.level = debug
rootLogger.appenderRef.stderr.ref = console
"""
"""Of executors."""

PAGES = ("environment", "sql?details=true&planDescription=true", "allexecutors", "jobs")


def run(spark, folder, reads, writes):
    """Read, write, follow, run a pipeline; return how many messages the last has put."""
    table = spark.read.format("poe").options(**reads, topic="in").load()
    table.explain(extended=True)
    table.show()
    rows = table.select("message")
    rows.write.format("poe").mode("append").options(**writes, topic="written").save()
    flow(spark, folder / "flow", reads, writes).awaitTermination()
    pipeline = Pipeline("p", checkpoint=folder / "pipeline", server=writes)
    pipeline.source("from_written", topic="written", options={"startingPointer": "earliest"})
    pipeline.source("from_in", topic="in", options=reads)
    pipeline.sink("copy", takes="from_written", topic="copy")
    pipeline.sink("other", takes="from_in", topic="other")
    ended = run_pipeline(pipeline, RunOptions(available_now=True), spark)
    assert {each.state for each in ended.queries} == {"done"}, ended


def flow(spark, checkpoint, reads, writes):
    """Start a query from topic to topic."""
    stream = spark.readStream.format("poe").options(**reads, topic="in").load()
    writer = stream.select("message").writeStream.format("poe").options(**writes, topic="flow")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    return writer.start()


def fail(spark, folder, reads, wrong):
    """Have a read, a write, a stream and a pipeline refused."""

    def read(options, topic="in"):
        spark.read.format("poe").options(**options, topic=topic).load().collect()

    def write():
        rows = spark.range(3).selectExpr("string(id) AS message")
        rows.write.format("poe").mode("append").options(**reads, topic="written").save()

    def stream():
        flow(spark, folder / "refused", reads, reads).awaitTermination()

    def pipeline():
        refused = Pipeline("q", checkpoint=folder / "refused pipeline", server=wrong)
        refused.source("s", topic="in")
        refused.sink("t", takes="s", topic="t")
        run_pipeline(refused, RunOptions(available_now=True), spark)

    for deed in (
        lambda: read(wrong),
        lambda: read(reads, "no"),
        write,
        stream,
        pipeline,
    ):
        try:
            deed()
        except (PySparkException, PoeError):
            _log.exception("as it should be")
        else:
            message = "it was not refused"
            raise AssertionError(message)


def look(spark, folder):
    """Keep what Spark's pages tell, and the files that it removes at its end."""
    shutil.copytree(folder / "local", folder / "local then")
    context = spark.sparkContext
    base = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/"
    addresses = [base + page for page in PAGES]
    addresses += [f"{context.uiWebUrl}/{page}/" for page in ("environment", "SQL")]
    for number, address in enumerate(addresses):
        with contextlib.closing(urllib.request.urlopen(address, timeout=30)) as page:
            (folder / f"page{number}").write_bytes(page.read())


def main(master, folder, *options):
    """Do all of it."""
    reads, writes, wrong = map(json.loads, options)
    logging.basicConfig(level=logging.DEBUG)
    folder = Path(folder)
    (folder / "events").mkdir()
    (folder / "log4j2.properties").write_text(LOGGING)
    config = {
        "spark.log.level": "DEBUG",
        "spark.executor.extraJavaOptions": f"-Dlog4j.configurationFile={folder}/log4j2.properties",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.compress": "false",
        "spark.ui.port": "0",
        "spark.local.dir": str(folder / "local"),
        "spark.broadcast.compress": "false",
        "spark.shuffle.compress": "false",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.task.maxFailures": "1",  # what is refused is refused again
    }
    spark = session("leaks", master, **config)
    run(spark, folder, reads, writes)
    fail(spark, folder, reads, wrong)
    look(spark, folder)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
