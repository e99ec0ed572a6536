"""The program that archives what is about to expire, for a node that has an `archive_dir`.

The archiver in the node's tree starts it. It looks at the files in the node's folder and does not
ask the node. Its exit code is 0 when all that is too old is archived.
"""

import logging
import os
import sys
import time
from functools import partial
from pathlib import Path

from poe.actors import end_with_parent
from poe.broker import ArchiveFolders
from poe.cli.archive import SETTINGS
from poe.cli.exit_code import ExitCode
from poe.cli.log import start_logging
from poe.errors import PoeError, StorageError
from poe.spark.archive import archive_topics
from poe.spark.folder_segments import FolderSegments
from poe.spark.session import session
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
    """Archive the segments in a folder whose newest messages have an age.

    The arguments are the folder of the node, those of the archives (`ArchiveFolders`), and the age
    in seconds.
    """
    end_with_parent()
    os.nice(_NICENESS)
    start_logging("warning")
    # Spark's Python processes are to find this package where this one does.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    base, archives, age_s = sys.argv[1:]
    before = time.time_ns() // 1000 - int(float(age_s) * 1_000_000)
    try:
        topics = _topics_by_archive(base, ArchiveFolders.decode(archives))
    except PoeError as error:
        _log.error("nothing is archived: %s", error)
        return ExitCode.FAILURE
    # Each of them is tried, whatever becomes of the others.
    are_done = [_archive(base, topics[to], to, before) for to in sorted(topics)]
    return ExitCode.OK if all(are_done) else ExitCode.FAILURE


def _topics_by_archive(base: str, archives: ArchiveFolders) -> dict[Path, list[str]]:
    """Return the topics that are archived, by the folders that they go to."""
    folder = SharedFolder.at(Path(base))
    topics: dict[Path, list[str]] = {}
    for topic in folder.topics():
        to = archives.folder(topic)
        # A folder without segments is a topic that is being made or deleted, or of somebody else.
        if to is not None and folder.segments(topic, POINTER_MAX):
            topics.setdefault(to, []).append(os.fsdecode(topic))
    return topics


def _archive(base: str, topics: list[str], to: Path, before: int) -> bool:
    """Archive what is due of some topics; tell whether all of it is archived.

    A folder that is away is not made, as its disk may only not be mounted; and that is no failure,
    after which the topics of others would wait: the node starts this program again when it is back.
    """
    start_spark = partial(session, "poe archive", **_SETTINGS)
    try:
        Archive.existing(to)
    except StorageError as error:
        _log.error("nothing is archived into %s: %s", to, error)
        return True
    try:
        outcomes = archive_topics(partial(FolderSegments, base), topics, to, start_spark, before)
    except PoeError as error:
        _log.error("nothing is archived into %s: %s", to, error)
        return False
    failed = [each for each in outcomes if each.failure]
    for each in failed:
        topic = topic_text(os.fsencode(each.topic))
        _log.error("segment %d of topic %s is not archived: %s", each.segment, topic, each.failure)
    return not failed
