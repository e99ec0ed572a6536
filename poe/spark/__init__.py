"""Spark: topics are tables and streams of Spark, through PySpark's Python data source API.

Needs the extra `poe-queue[spark]` and Java 17; `import poe` does not load any of it.
"""

from poe.spark.data_source import PoeDataSource
from poe.spark.pipeline import Pipeline
from poe.spark.session import register, session

__all__ = ["Pipeline", "PoeDataSource", "register", "session"]
