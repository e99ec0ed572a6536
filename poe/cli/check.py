"""`poe check`: turns a stopped server's folder into a report of damage; changes nothing."""

from pathlib import Path
from typing import Annotated

import typer

from poe.cli import argument
from poe.cli.exit_code import ExitCode
from poe.cli.output import counted, write_line
from poe.storage import check_segments, stopped_store


def check(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The server's --dir.", parser=argument.folder)
    ],
    *,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Tell of sound segments, too.")
    ] = False,
) -> ExitCode:
    """Check all files of a stopped server, and change nothing.

    Every record and every index entry is compared. The exit code is 1 when there is damage. What a
    killed server leaves behind is no damage: the next start recovers it.
    """
    segments_count = messages_count = size_bytes = damaged_count = 0
    with stopped_store(folder.expanduser()) as files:
        for segment in check_segments(files):
            segments_count += 1
            messages_count += segment.count
            size_bytes += segment.size_bytes
            damaged_count += bool(segment.damage)
            for finding in segment.damage:
                write_line(f"{segment.path}: DAMAGED: {finding}")
            for finding in segment.notes:
                write_line(f"{segment.path}: note: {finding}")
            if verbose and not segment.damage:
                write_line(
                    f"{segment.path}: {counted(segment.count, 'message')}, "
                    f"{counted(segment.size_bytes, 'byte')}"
                )
    write_line(
        f"{counted(segments_count, 'segment')}, {counted(messages_count, 'message')}, "
        f"{counted(size_bytes, 'byte')}: "
        + (f"{damaged_count} damaged" if damaged_count else "all sound")
    )
    return ExitCode.FAILURE if damaged_count else ExitCode.OK
