"""Two topics joined by the hour: failed log-ins of an SSH server and errors of a web server."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from poe.spark import Pipeline

CONFIG = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": 2}

pipeline = Pipeline("bad_hours", config=CONFIG)
pipeline.source(
    "sshd",
    topic="sshd",
    parse={"format": "regex", "pattern": r"^(?P<time>\w+ +\d+ [\d:]+) \S+ (?P<text>.*)$"},
)
pipeline.source(
    "apache",
    topic="apache",
    parse={"format": "regex", "pattern": r"^\[\w+ (?P<time>[^\]]+)\] \[(?P<level>\w+)\]"},
)


def by_hour(lines: DataFrame, *aggregates: Column) -> DataFrame:
    """Aggregate the lines of each hour, once it is ten minutes over."""
    return (
        lines.withWatermark("at", "10 minutes").groupBy(F.window("at", "1 hour")).agg(*aggregates)
    )


def login_hours(sshd: DataFrame) -> DataFrame:
    """Failed log-ins of each hour, and from how many addresses."""
    time = F.concat(F.lit("2015 "), F.regexp_replace("time", " +", " "))
    address = F.regexp_extract("text", "Failed password for .* from ([0-9.]+) port", 1)
    lines = sshd.select(
        F.try_to_timestamp(time, F.lit("yyyy MMM d HH:mm:ss")).alias("at"),
        F.nullif(address, F.lit("")).alias("address"),
    )
    addresses = F.approx_count_distinct("address").alias("addresses")
    return by_hour(lines, F.count("address").alias("failed_logins"), addresses)


def web_hours(apache: DataFrame) -> DataFrame:
    """Errors of each hour."""
    time = F.try_to_timestamp("time", F.lit("MMM dd HH:mm:ss yyyy")).alias("at")
    errors = F.count_if(F.col("level") == "error").alias("web_errors")
    return by_hour(apache.select(time, "level"), errors)


def hours(login_hours: DataFrame, web_hours: DataFrame) -> DataFrame:
    """Join what happened in the same hour."""
    joined = login_hours.join(web_hours, "window")
    return joined.select(
        F.col("window.start").alias("begins"), "failed_logins", "addresses", "web_errors"
    )


pipeline.step("login_hours", function=login_hours)
pipeline.step("web_hours", function=web_hours)
pipeline.step("hours", function=hours)
pipeline.sink("bad_hours", takes="hours", format="parquet", path="bad_hours.parquet")
