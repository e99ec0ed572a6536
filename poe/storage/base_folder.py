"""Opens the base folder of a store, unless it is not the one that was meant or cannot be guarded.

Nothing is written into a folder that is refused.
"""

from pathlib import Path

from poe.errors import OptionError
from poe.storage.file_system import NETWORK_FILE_SYSTEMS
from poe.storage.files import Files
from poe.storage.real_files import RealFiles
from poe.storage.store_meta import read_store_id
from poe.storage.store_options import StoreOptions


def open_base(base: Path | Files, options: StoreOptions) -> Files:
    """Open a base folder, making it when missing and no certain store is expected there.

    Raises:
        OptionError: it lies on a network file system, does not hold the store that is expected, or
            cannot be opened.
        FormatNotSupported: a newer version has written it.
        OSError: it cannot be read.
    """
    if isinstance(base, Path):
        if options.store_id is not None and not base.is_dir():
            raise _no_store(str(base), options.store_id)
        base = RealFiles.at(base)
    kind = base.file_system()
    if kind in NETWORK_FILE_SYSTEMS and not options.allow_network_file_system:
        allowed = f"a folder on a local disk: this is {kind}, where a server on another host could "
        allowed += "write to the same files; or set allow_network_file_system"
        raise OptionError("dir", base.base, allowed)
    if options.store_id is not None:
        found = read_store_id(base)
        if found is None:
            raise _no_store(base.base, options.store_id)
        if found != options.store_id:
            raise OptionError("store_id", options.store_id, f"{found} for the store in {base.base}")
    return base


def _no_store(folder: str, store_id: str) -> OptionError:
    allowed = f"the folder of that store: {folder} holds none (is its disk mounted?); without "
    return OptionError("store_id", store_id, allowed + "store_id a new one is made")
