"""`poe unlock`: takes over what another program has locked, once somebody says that it is gone."""

from pathlib import Path
from typing import Annotated

import typer

from poe.cli import argument
from poe.cli.exit_code import ExitCode
from poe.cli.output import counted, write_line
from poe.storage import foreign_locks, stopped_store, unlock_segments


def unlock(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The server's --dir.", parser=argument.folder)
    ],
    *,
    force: Annotated[bool, typer.Option("--force", help="Remove the locks.")] = False,
) -> ExitCode:
    """Remove the locks that the original has left in a stopped server's folder.

    A server takes over the lock of a program that it knows to be dead. It does not start behind one
    of a program that may run out of its sight: in another container, on another host or for another
    user. Make sure that none runs before you use --force, since two programs that write to one
    segment destroy it. Without --force the locks are told, and the exit code is 1 when there are
    any. What the program has written is kept.
    """
    with stopped_store(folder) as files:
        locked = foreign_locks(files)
        if force:
            unlock_segments(files, locked)
    for path in locked:
        write_line(f"{path}: {'unlocked' if force else 'locked by another program'}")
    write_line(f"{counted(len(locked), 'lock')} of other programs" + " removed" * force)
    return ExitCode.FAILURE if locked and not force else ExitCode.OK
