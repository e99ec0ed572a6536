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
from poe.cli.archive import SETTINGS
from poe.cli.exit_code import ExitCode
from poe.cli.log import start_logging
from poe.errors import PoeError
from poe.spark.archive import archive_topics
from poe.spark.folder_segments import FolderSegments
from poe.spark.session import session
from poe.storage import POINTER_MAX, SharedFolder, topic_text

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

    The arguments are the folder of the node, that of the archive, and the age in seconds.
    """
    end_with_parent()
    os.nice(_NICENESS)
    start_logging("warning")
    # Spark's Python processes are to find this package where this one does.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    base, to, age_s = sys.argv[1:]
    before = time.time_ns() // 1000 - int(float(age_s) * 1_000_000)
    try:
        folder = SharedFolder.at(Path(base))
        # A folder without segments is a topic that is being made or deleted, or of somebody else.
        found = (topic for topic in folder.topics() if folder.segments(topic, POINTER_MAX))
        topics = [os.fsdecode(topic) for topic in found]
        outcomes = archive_topics(
            partial(FolderSegments, base),
            topics,
            Path(to),
            partial(session, "poe archive", **_SETTINGS),
            before,
        )
    except PoeError as error:
        _log.error("nothing is archived: %s", error)
        return ExitCode.FAILURE
    failed = [each for each in outcomes if each.failure]
    for each in failed:
        topic = topic_text(os.fsencode(each.topic))
        _log.error("segment %d of topic %s is not archived: %s", each.segment, topic, each.failure)
    return ExitCode.FAILURE if failed else ExitCode.OK
