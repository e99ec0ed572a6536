"""The program that archives what is about to expire, for a node that has an `archive_dir`.

The archiver in the node's tree starts it. It looks at the files in the node's folder and does not
ask the node: so whenever it is started, it knows what is due by then. Its exit code is 0 when all
of that is archived.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from poe.actors import end_with_parent
from poe.broker import ArchiveFolders
from poe.broker.registry.expiry import count_soon_due
from poe.broker.registry.topic_settings import Retention, retention_of
from poe.cli.archive import SETTINGS
from poe.cli.exit_code import ExitCode
from poe.cli.log import start_logging
from poe.errors import PoeError, StorageError
from poe.spark.archive import CountDue, archive_topics
from poe.spark.folder_segments import FolderSegments
from poe.spark.planning import SegmentRange
from poe.spark.session import started_session
from poe.storage import POINTER_MAX, Archive, SharedFolder
from poe.topic_name import topic_text

_log = logging.getLogger("poe.cli")

_NICENESS = 10
"""The server's clients come first."""
_SETTINGS = {
    **SETTINGS,
    "spark.driver.memory": "512m",  # messages pass through Python alone
    "spark.ui.showConsoleProgress": "false",  # the node's log is no terminal
}


def main() -> int:
    """Archive the segments in a folder that are due, or soon will be.

    The arguments are the folder of the node, those of the archives (`ArchiveFolders`), and in JSON
    the fields of the node's `Retention`.
    """
    end_with_parent()
    os.nice(_NICENESS)
    start_logging("warning")
    # Spark's Python processes are to find this package where this one does.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    base, archives, retention = sys.argv[1:]
    try:
        folder = SharedFolder.at(Path(base))
        topics = topics_by_archive(folder, ArchiveFolders.decode(archives))
        kept = Retention(*json.loads(retention))
        count_due = due_counter(folder, kept, time.time_ns() // 1000)
    except PoeError as error:
        _log.error("nothing is archived: %s", error)
        return ExitCode.FAILURE
    # Each of them is tried, whatever becomes of the others.
    are_done = [_archive(base, topics[to], to, count_due) for to in sorted(topics)]
    return ExitCode.OK if all(are_done) else ExitCode.FAILURE


def due_counter(folder: SharedFolder, node: Retention, now_us: int) -> CountDue:
    """Return what tells how many segments of a topic are due, as the node's registry counts them.

    Args:
        folder: that of the node.
        node: how long messages are kept where their topic does not say it.
        now_us: the time.

    Raises:
        ReadFailed, FormatNotSupported: what topics say cannot be read.
    """
    known = folder.known_topics()

    def count_due(topic: str, segments: Sequence[SegmentRange]) -> int:
        name = os.fsencode(topic)
        kept = retention_of(name, known.holder(name), node)
        *sealed, writer = segments
        measures = [(each.last, each.bytes) for each in sealed]
        return count_soon_due(kept, now_us, measures, writer.bytes)

    return count_due


def topics_by_archive(folder: SharedFolder, archives: ArchiveFolders) -> dict[Path, list[str]]:
    """Return the topics that are archived, by the folders that they go to."""
    topics: dict[Path, list[str]] = {}
    for topic in folder.topics():
        to = archives.folder(topic)
        if to is not None and _may_have_segments(folder, topic):
            topics.setdefault(to, []).append(os.fsdecode(topic))
    return topics


def _may_have_segments(folder: SharedFolder, topic: bytes) -> bool:
    """Return whether it is no folder of somebody else, nor of a topic that is made or deleted now.

    Why one cannot be looked into is told with its topic, and keeps no other from being archived.
    """
    try:
        return bool(folder.segments(topic, POINTER_MAX))
    except StorageError:
        return True


def _archive(base: str, topics: list[str], to: Path, count_due: CountDue) -> bool:
    """Archive what is due of some topics; tell whether all of it is archived.

    A folder that is away is not made, as its disk may only not be mounted; and that is no failure,
    after which the topics of others would wait: the node starts this program again when it is back.
    """
    start_spark = partial(started_session, "poe archive", **_SETTINGS)
    try:
        Archive.existing(to)
    except StorageError as error:
        _log.error("nothing is archived into %s: %s", to, error)
        return True
    try:
        open_segments = partial(FolderSegments, base, has_damaged=True)
        outcomes = archive_topics(open_segments, topics, to, start_spark, count_due)
    except PoeError as error:
        _log.error("nothing is archived into %s: %s", to, error)
        return False
    failed = [each for each in outcomes if each.failure]
    for each in failed:
        topic = topic_text(os.fsencode(each.topic))
        _log.error("segment %d of topic %s is not archived: %s", each.segment, topic, each.failure)
    return not failed
