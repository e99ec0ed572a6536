"""Tells what a folder holds that is somebody else's, before Poe writes into it."""

from collections.abc import Callable

from poe.errors import OptionError
from poe.storage.files import FolderEntry

_SHOWN_MAX = 3


def foreign_names(entries: list[FolderEntry], is_ours: Callable[[FolderEntry], bool]) -> list[str]:
    """Return the names that are not ours, sorted; hidden ones and a new disk's are nobody's."""
    return sorted(
        entry.name
        for entry in entries
        if not (entry.name.startswith(".") or entry.name == "lost+found" or is_ours(entry))
    )


def check_no_foreign(key: str, folder: str, names: list[str], what: str) -> None:
    """Refuse a folder that holds names of others.

    Args:
        key: the option that names the folder.
        folder: its path.
        names: of others, as `foreign_names` returns them.
        what: what is to be in the folder.

    Raises:
        OptionError: there are some; it tells the first of them.
    """
    if not names:
        return
    shown = ", ".join(map(repr, names[:_SHOWN_MAX]))
    more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
    allowed = f"an empty folder or one with {what}: this one holds {shown}{more}; "
    raise OptionError(key, folder, f"{allowed}or set adopt_folder to make {what} beside them")
