"""Reads and writes topics on executors in processes of their own: `cluster_program.py PORT MASTER`.

It finds `poe` by itself and not by PYTHONPATH, so that executors can have it from Spark alone.
"""

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from pyspark.sql import functions as F  # noqa: N812

from poe.spark import session


def where(_):
    """Tell where an executor has poe from."""
    import poe  # noqa: PLC0415 - in the executor

    yield str(Path(poe.__file__).resolve())


def dies_once(batches):
    """Pass rows on; in the middle of the first attempt the executor is killed."""
    from pyspark import TaskContext  # noqa: PLC0415 - in the executor

    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if number == 6 and context.partitionId() == context.attemptNumber() == 0:
            # An executor has started the daemon that has started this process.
            stat = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
        yield batch


def write(spark, port):
    """Write numbers, although an executor is killed when it has staged some of them."""
    rows = spark.range(0, 200_000, 1, 2).select(F.col("id").cast("string").alias("message"))
    writer = rows.mapInArrow(dies_once, rows.schema).write.format("poe").mode("append")
    writer.options(host="127.0.0.1", port=port, topic="numbers").save()


def main():
    config = {
        "spark.ui.enabled": "false",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
    }
    spark = session("cluster", sys.argv[2], **config)
    assert session("cluster", sys.argv[2]).sparkContext is spark.sparkContext, "as a cell run twice"
    options = {"host": "127.0.0.1", "port": sys.argv[1], "topic": "t", "minPartitions": "4"}
    table = spark.read.format("poe").options(**options).load()
    row = table.agg(F.count("*").alias("count"), F.max("message").alias("newest")).first()
    assert row is not None
    # A barrier has its tasks run at the same time, so on as many executors of one core each.
    places = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(where)
    found = {
        "count": row["count"],
        "newest": bytes(row["newest"]).decode(),
        "partitions": table.rdd.getNumPartitions(),
        "poe": places.collect(),
    }
    write(spark, sys.argv[1])
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
