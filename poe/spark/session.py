"""A Spark session that knows topics, with the running interpreter in its executors."""

import os
import sys

from pyspark.sql import SparkSession

from poe.spark.data_source import PoeDataSource


def session(app_name: str = "poe", master: str = "local[2]", **config: str) -> SparkSession:
    """Return a session with the data source `poe`.

    Args:
        app_name: name of the application.
        master: where it runs, in Spark's words.
        config: Spark's own options, as in `**{"spark.ui.enabled": "false"}`.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in config.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(PoeDataSource)
    return spark
