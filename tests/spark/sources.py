"""The data source as Spark uses it, without a JVM: plan, pickle, read; and topics to read."""

import pickle

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from poe.spark import PoeDataSource
from tests.broker.nodes import SimulatedNode


def data_source(**options):
    return PoeDataSource(CaseInsensitiveDict({k: str(v) for k, v in options.items()}))


def batch_reader(schema=None, **options):
    source = data_source(**options)
    return source.reader(as_schema(source, schema))


def stream_reader(schema=None, **options):
    source = data_source(**options)
    return source.streamReader(as_schema(source, schema))


def as_schema(source, names):
    full = source.schema()
    return full if names is None else StructType([full[name] for name in names])


def table(reader, partitions) -> pa.Table:
    """Read partitions as executors do: from a pickled reader and pickled partitions."""
    reader = pickle.loads(pickle.dumps(reader))
    parts = pickle.loads(pickle.dumps(list(partitions)))
    batches = [batch for part in parts for batch in reader.read(part)]
    return pa.Table.from_batches(batches) if batches else pa.table({"message": []})


def batch_table(schema=None, filters=(), **options):
    reader = batch_reader(schema, **options, filterPushdown="true" if filters else "false")
    if filters:
        reader.pushFilters(list(filters))
    return table(reader, reader.partitions())


def messages(read: pa.Table):
    return read["message"].to_pylist()


class Topics(SimulatedNode):
    """A node in simulated time, whose folder can be read while it runs and when it is stopped."""

    def put(self, topic, *batch):
        """Put a batch so that it can be seen in the folder at once."""
        pointer = self.node.put_many(topic, [each.encode() for each in batch])
        self.flush()
        return pointer

    def flush(self):
        """Have the index written, as a writer does by itself when it has hibernated."""
        self.advance(3)
