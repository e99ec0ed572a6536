"""`poe archive`: turns what is sealed of a topic into Parquet, by Spark."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from poe.broker import missing_for_spark
from poe.cli import argument
from poe.cli.endpoint import Endpoint
from poe.cli.endpoint_options import asks_server, complete_topic
from poe.cli.exit_code import ExitCode
from poe.cli.output import counted, write_error, write_line
from poe.errors import SparkMissing
from poe.storage import Archive
from poe.topic_name import topic_text

SETTINGS = {"spark.log.level": "ERROR", "spark.ui.enabled": "false"}
"""For Spark, whose pages anybody on the network could look at."""
_RETRY_TIMEOUT_S = 30.0


@asks_server
def archive(  # noqa: PLR0913 - options of a command line
    topic: Annotated[
        bytes,
        typer.Argument(metavar="TOPIC", parser=argument.topic_name, autocompletion=complete_topic),
    ],
    *,
    to: Annotated[
        Path,
        typer.Option("--to", metavar="DIR", help="The archive.", parser=argument.folder),
    ],
    path: Annotated[
        Path | None,
        typer.Option(
            "--path",
            metavar="DIR",
            help="A server's --dir: read its files, and ask no server.",
            parser=argument.folder,
        ),
    ] = None,
    master: Annotated[
        str, typer.Option("--master", metavar="TEXT", help="Where Spark runs.")
    ] = "local[2]",
    adopt_folder: Annotated[
        bool,
        typer.Option(
            "--adopt-folder", help="Archive into a folder that holds something else, too."
        ),
    ] = False,
    endpoint: Endpoint,
) -> ExitCode:
    """Write the sealed segments of a topic to Parquet files, and delete nothing.

    What is archived already is passed over: the command may be repeated, and killed at any moment.
    The segment that takes messages now is left for later. The exit code is 1 when a segment could
    not be archived; the others are.
    """
    missing = missing_for_spark()
    if missing:
        raise SparkMissing(missing)
    if not adopt_folder:
        Archive.check("--to", to)
    # They load PySpark, which a server and the other commands do without.
    from poe.spark.archive import OpenSegments, archive_topics  # noqa: PLC0415
    from poe.spark.broker_segments import BrokerSegments  # noqa: PLC0415
    from poe.spark.folder_segments import FolderSegments  # noqa: PLC0415
    from poe.spark.server_options import for_tasks  # noqa: PLC0415
    from poe.spark.session import apart_from_interrupts, started_session  # noqa: PLC0415

    open_segments: OpenSegments = partial(
        BrokerSegments,
        (for_tasks(endpoint.server),),
        retry_timeout_s=_RETRY_TIMEOUT_S,
        is_known=False,
    )
    if path is not None:
        open_segments = partial(FolderSegments, str(path.absolute()), has_damaged=True)
    start_spark = partial(started_session, "poe archive", master, **SETTINGS)
    archived = partial(archive_topics, open_segments, [os.fsdecode(topic)], to, start_spark)
    outcomes = apart_from_interrupts(archived)
    failed = [each for each in outcomes if each.failure]
    for each in failed:
        write_error(f"segment {each.segment} is not archived: {each.failure}")
    segments = counted(len(outcomes) - len(failed), "segment")
    messages = counted(sum(each.count for each in outcomes), "message")
    write_line(f"{topic_text(topic)}: {segments} archived, {messages}")
    return ExitCode.FAILURE if failed else ExitCode.OK
