"""The session that knows the format `poe`."""

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_streams_that_start_at_the_same_time_change_a_map_that_bears_it(spark):
    """Each of them puts entries into the environment of the data source, in a thread of its own."""
    data_source = spark._jsparkSession.sessionState().dataSourceManager().lookupDataSource("poe")  # noqa: SLF001
    environment = data_source.dataSourceCls().envVars()
    assert environment.getClass().getName() == "java.util.concurrent.ConcurrentHashMap"
    assert dict(environment).items() >= spark.sparkContext.environment.items()
