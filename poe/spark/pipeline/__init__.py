"""Pipelines: a file in, queries of Spark under supervision out.

`definitions` and `pipeline` are what one writes down, `file` reads it, `plan` and `parsing` turn it
into DataFrames, `query`, `progress` and `runner` run them. Only those load the actor runtime, which
executors need not have.
"""

from poe.spark.pipeline.file import load_pipeline
from poe.spark.pipeline.pipeline import Pipeline

__all__ = ["Pipeline", "load_pipeline"]
