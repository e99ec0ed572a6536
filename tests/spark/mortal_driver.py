"""A driver as a process of its own, which kills itself in a commit: from files onto two topics.

    python -m tests.spark.mortal_driver PORT FOLDER PARTITIONS [COMMITS CALLS]

It is killed, with its JVM, when the commit behind so many has made so many calls of the server, or
has made all of them: then Spark does not know yet that it is done.
"""

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from poe.spark import PoeDataSource, session, stream_writer
from poe.spark.retrying_socket import RetryingSocket

FAST_START = {
    "spark.driver.extraJavaOptions": "-XX:+UnlockDiagnosticVMOptions "
    "-XX:-BytecodeVerificationRemote",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Each driver lives for two micro-batches only: most of its time is its start."""


class MortalSocket(RetryingSocket):
    """Lives for so many calls, and takes the driver with it."""

    calls_left = 0

    def call(self, method, *args, **kwargs):
        if self.calls_left == 0:
            kill_driver()
        self.calls_left -= 1
        return super().call(method, *args, **kwargs)

    def close(self):
        kill_driver()


class MortalDataSource(PoeDataSource):
    """The data source, whose commit is killed; Spark makes each commit a process of its own."""

    def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
        writer = super().streamWriter(schema, overwrite)
        commits_left, calls = map(int, os.environ["POE_TEST_KILL"].split(","))
        diary = Path(os.environ["POE_TEST_DIARY"])

        def connect(options):
            with diary.open("ab") as commits:
                commits.write(b".")
                commits_count = commits.tell()
            if commits_count <= commits_left:
                return RetryingSocket(options.servers, options.retry_timeout)
            socket = MortalSocket(options.servers, options.retry_timeout)
            socket.calls_left = calls
            return socket

        # The tasks have this module anew, in processes of their own: only the commit is changed.
        vars(stream_writer)["connect"] = connect
        return writer


def kill_driver():
    os.killpg(int(os.environ["POE_TEST_GROUP"]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def main(port, folder, partitions, *kill):
    diary = Path(folder, "diary")
    diary.write_bytes(b"")
    os.environ["POE_TEST_GROUP"] = str(os.getpgid(0))
    os.environ["POE_TEST_KILL"] = ",".join(kill)
    os.environ["POE_TEST_DIARY"] = str(diary)
    config = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": partitions}
    spark = session("driver", "local[2]", **config, **FAST_START)
    spark.sparkContext.setLogLevel("ERROR")
    if kill:
        spark.dataSource.register(MortalDataSource)
    source = spark.readStream.format("text").option("maxFilesPerTrigger", 1 if kill else 1000)
    lines = source.load(f"{folder}/in").repartition(int(partitions))
    topic = F.when(F.length("value") % 2 == 0, "even").otherwise("odd")
    rows = lines.select(topic.alias("topic"), F.col("value").alias("message"))
    sink = rows.writeStream.format("poe").options(port=port, retryTimeout="20")
    sink = sink.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    sink.start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
