"""Turn the address that a slab begins with into the names of its files, and back.

Layout of a log's folder:
    <address>.slab   records; the address of its first byte in 20 digits, with leading zeros
    <address>.sum    checksums of the slab, see slab_sum.py
    writer.lock      pid and boot of the writer, under flock while it lives: see writer_lock.py

Source: queuefka.go, create and SlabFiles; it takes whatever ends in `.slab`, and reads what is no
number as 0.
"""

import logging
import re
from pathlib import Path

from poe.errors import OptionError
from poe.storage.failure import as_read_failed, reading
from poe.storage.files import Files
from poe.storage.real_files import RealFiles

_log = logging.getLogger(__name__)

LOCK_FILE = "writer.lock"
ADDRESS_MAX = 2**64 - 1
_NAME = re.compile(r"([0-9]{20})\.slab", re.ASCII)


def slab_path(start: int) -> str:
    """Name the file of the slab that begins at an address."""
    return f"{start:020}.slab"


def sum_path(start: int) -> str:
    """Name the side file of that slab."""
    return f"{start:020}.sum"


def full_path(files: Files, path: str) -> str:
    """Name a file for people."""
    return f"{files.base}/{path}"


def find_slabs(files: Files) -> list[int]:
    """Return where the slabs of a log begin, in rising order.

    Raises:
        OSError: as reported by the file layer.
    """
    names = (_NAME.fullmatch(entry.name) for entry in files.list_folder("") if not entry.is_folder)
    starts = (int(name[1]) for name in names if name)
    return sorted(start for start in starts if start <= ADDRESS_MAX)


def warn_of_strays(files: Files) -> None:
    """Log a warning for each name that ends like a slab's and is none.

    Raises:
        OSError: as reported by the file layer.
    """
    known = {slab_path(start) for start in find_slabs(files)}
    for entry in files.list_folder(""):
        if entry.name.endswith(".slab") and entry.name not in known:
            _log.warning("%r in %s is no slab and is ignored", entry.name, files.base)


def open_log(path: str | Path | Files) -> Files:
    """Open the folder of a log that is there; a file layer is taken as it is.

    Raises:
        OptionError: there is no log.
        ReadFailed: the folder cannot be read.
    """
    refuse_empty(path)
    try:
        files = RealFiles.existing(Path(path)) if isinstance(path, str | Path) else path
    except (FileNotFoundError, NotADirectoryError) as error:
        raise no_log(str(path)) from error
    except OSError as error:
        raise as_read_failed(error, str(path)) from error
    with reading(files.base):
        if not find_slabs(files):
            raise no_log(files.base)
    return files


def refuse_empty(path: str | Path | Files) -> None:
    """Keep an empty path, as an empty variable gives it, from meaning the current folder.

    Raises:
        OptionError: it is empty.
    """
    if isinstance(path, str) and not path:
        raise OptionError("path", path, "the folder of a slab log, '.' for the current one")


def no_log(path: str) -> OptionError:
    """Make the error of a folder that holds no log."""
    return OptionError("path", path, "the folder of a slab log; a Writer makes one")
