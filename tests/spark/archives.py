"""A store in simulated time with an archive beside it, and Spark's place taken by a loop."""

import json
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq

from poe.cli.archive_process import due_counter
from poe.spark.archive import archive_topics
from poe.spark.folder_segments import FolderSegments
from poe.storage import SharedFolder
from tests.broker.nodes import SimulatedNode
from tests.spark.sources import batch_reader, messages, table

TOPIC = "t"
MAX_AGE_S = 100.0


def in_a_loop() -> Any:
    """Return what carries tasks out one after the other, as far as the archiver asks Spark."""

    class Tasks(list[Any]):
        def map(self, task):
            return Tasks(map(task, self))

        def collect(self):
            return list(self)

    context = SimpleNamespace(parallelize=lambda rows, count: Tasks(rows))
    return nullcontext(SimpleNamespace(sparkContext=context))


class ArchivedNode:
    """Puts numbered messages; time moves, and segments are archived, when a test says so."""

    def __init__(self, folder: Path, **options: Any):
        self.folder = folder / "node"
        self.archive_dir = folder / "archive"
        self.archive_dir.mkdir()
        options = {"count_limit": 10, "max_age": MAX_AGE_S} | options
        self.sim = SimulatedNode(self.folder, archive_dir=self.archive_dir, **options)
        self.count = 0

    def put(self, count):
        """Put the next messages, as one batch; they are `<number>`."""
        messages = [b"%d" % number for number in range(self.count, self.count + count)]
        self.count += count
        self.sim.node.put_many(TOPIC, messages)
        self.sim.advance(1)  # a writer that is full is sealed

    def archive(self, topics=(TOPIC,)):
        return self._archive(topics, None)

    def archive_due(self, topics=(TOPIC,)):
        """Do as the program does that the node starts."""
        now_us = self.sim.wall.now_us()
        kept = self.sim.node.config.registry.retention
        return self._archive(topics, due_counter(SharedFolder.at(self.folder), kept, now_us))

    def _archive(self, topics, count_due):
        open_segments = partial(FolderSegments, str(self.folder), has_damaged=True)
        return archive_topics(open_segments, topics, self.archive_dir, in_a_loop, count_due)

    def expire(self):
        """Let time go by until all that may be deleted is."""
        self.sim.advance(MAX_AGE_S * 1.3)

    def segments_count(self):
        return len(list(self.folder.glob("topics/*/*_data")))

    def reader(self, **options):
        given = {"path": self.folder, "archive": self.archive_dir, "topic": TOPIC}
        return batch_reader(**{key: value for key, value in (given | options).items() if value})

    def read(self, **options):
        reader = self.reader(**options)
        return numbers(reader, reader.partitions())


def numbers(reader, partitions):
    """Read partitions, and return the numbers of their messages, which are their ordinals."""
    found = table(reader, partitions)
    told = list(map(int, messages(found)))
    if "ordinal" in found.column_names:
        assert found["ordinal"].to_pylist() == told
    return told


def archive_folder(base, archive_dir):
    """Archive the topic of a folder; for a process that is killed meanwhile."""
    archive_topics(partial(FolderSegments, base), [TOPIC], Path(archive_dir), in_a_loop)


def assert_whole(archive_dir: Path, segments):
    """Check that the archive holds so many segments, each once, and nothing else."""
    manifests = sorted(archive_dir.glob("topic=t/_manifest/*"))
    files = sorted(archive_dir.glob("topic=t/date=*/*"))
    named = [
        (path.parent.parent / file["path"], sum(group["count"] for group in file["groups"]))
        for path in manifests
        for file in json.loads(path.read_bytes())["files"]
    ]
    assert len(manifests) == segments
    assert sorted(named) == [(path, pq.read_metadata(path).num_rows) for path in files]
    assert not list((archive_dir / "_new").iterdir())
