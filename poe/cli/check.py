"""`poe check`: turns a stopped server's folder into a report of damage; mends it when asked to."""

import os
from pathlib import Path
from typing import Annotated

import typer

from poe.cli import argument
from poe.cli.exit_code import ExitCode
from poe.cli.output import counted, write_line
from poe.storage import (
    check_events,
    check_foreign,
    check_properties,
    check_removals,
    check_segments,
    read_store_id,
    repair_segments,
    stopped_store,
)
from poe.topic_name import topic_in, topic_text


def check(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The server's --dir.", parser=argument.folder)
    ],
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mend what can be mended from the data.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Tell of sound segments, too.")
    ] = False,
) -> ExitCode:
    """Check all files of a stopped server, and change nothing unless asked to.

    Every record, every index entry and every checksum is compared. The exit code is 1 when there is
    damage, with --repair when some is left: data that is not what was written cannot be mended, and
    is marked. Files of another segment or topic count as damage as long as they are there, in
    quarantine or not. What a killed server leaves behind is no damage: the next start recovers it.
    """
    segments_count = messages_count = size_bytes = damaged_count = 0
    with stopped_store(folder, for_repair=repair) as files:
        events = () if repair else check_events(files)
        for finding in [*events, *check_properties(files), *check_removals(files)]:
            damaged_count += 1
            write_line(f"DAMAGED: {finding}")
        for segment in repair_segments(files) if repair else check_segments(files):
            segments_count += segment.path.startswith("topics/")
            messages_count += segment.count
            size_bytes += segment.size_bytes
            damaged_count += bool(segment.damage)
            place = _place(segment.path)
            for finding in segment.damage:
                write_line(f"{place}: DAMAGED: {finding}")
            for finding in segment.notes:
                write_line(f"{place}: note: {finding}")
            if verbose and not segment.damage:
                write_line(
                    f"{place}: {counted(segment.count, 'message')}, "
                    f"{counted(segment.size_bytes, 'byte')}"
                )
        for finding in check_foreign(files):
            damaged_count += 1
            write_line(f"DAMAGED: {finding}")
        store_id = read_store_id(files)
    if store_id is not None:
        write_line(f"store {store_id}")
    write_line(
        f"{counted(segments_count, 'segment')}, {counted(messages_count, 'message')}, "
        f"{counted(size_bytes, 'byte')}: "
        + (f"{damaged_count} damaged" if damaged_count else "all sound")
    )
    return ExitCode.FAILURE if damaged_count else ExitCode.OK


def _place(path: str) -> str:
    """Return where a segment is, and its topic where the folder's name is another."""
    folder = path.split("/")[1] if path.startswith("topics/") else ""
    topic = topic_in(folder) or b""
    where = topic_text(os.fsencode(path))
    return where if topic == os.fsencode(folder) else f"{where} (topic {topic_text(topic)})"
