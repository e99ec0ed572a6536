"""Writes down the classes of Spark that a JVM loads: those of tests then start with a third less.

`make test` does so once, before the tests, by `python -m tests.spark.class_archive`.
"""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

CLASS_ARCHIVE: Final = Path(__file__).parents[2] / "build" / "spark.jsa"
JVM_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""No JVM of a test lives long enough for more, and with it most need half of the time."""


def jvm_options() -> str:
    """Return the options of a JVM of a test, with the archive where there is one that fits."""
    if not CLASS_ARCHIVE.exists():
        return JVM_OPTIONS
    # One that does not fit this JVM, or these jars, is passed over; it need not be said.
    return f"{JVM_OPTIONS} -XX:SharedArchiveFile={CLASS_ARCHIVE} -Xlog:disable"


def main() -> None:
    """Write the archive, if there are Spark and a JVM."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if find_spec("pyspark") is None or java is None:
        return
    made = CLASS_ARCHIVE.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{JVM_OPTIONS} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
    CLASS_ARCHIVE.parent.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        _use_spark(Path(folder))
    if made.exists():
        made.replace(CLASS_ARCHIVE)


def _use_spark(folder: Path) -> None:
    """Do a little of what tests do, by which the JVM loads what they need."""
    from pyspark.sql import functions  # noqa: PLC0415 - only where it is there

    from poe.spark import session  # noqa: PLC0415 - as above

    config = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    spark = session("class archive", "local[2]", **config)
    spark.sparkContext.setLogLevel("ERROR")
    numbers = spark.range(10).withColumn("half", functions.expr("CAST(id / 2 AS INT)"))
    halves = numbers.groupBy("half").count().join(numbers, "half")
    halves.mapInArrow(lambda batches: batches, halves.schema).write.parquet(str(folder / "halves"))
    stream = spark.readStream.schema(halves.schema).parquet(str(folder / "halves"))
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "copy"))
    )
    query.awaitTermination()
    spark.read.parquet(str(folder / "copy")).orderBy("id").collect()
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - its process writes the archive at its end
    assert gateway is not None
    process = gateway.proc
    spark.stop()
    process.stdin.close()
    process.wait()


if __name__ == "__main__":
    main()
