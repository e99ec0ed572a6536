"""The options of a store."""

import re
from dataclasses import dataclass
from typing import Annotated

from poe.errors import OptionError
from poe.option import Range, check_options

_STORE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """What a store asks of its folder and of the disk below it.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    min_free: Annotated[int, Range(0, unit="bytes")] = 128 * 1024 * 1024
    """Bytes free on the disk, below which puts are refused; 0 fills it."""

    allow_network_file_system: bool = False
    """Whether the folder may lie on NFS, SMB and the like, where nothing keeps a second server off
    for certain."""

    adopt_folder: bool = False
    """Make a store in a folder that holds something else already; otherwise that is refused, since
    it is rarely the folder that was meant."""

    store_id: str | None = None
    """The id of the store that the folder is to hold, as `poe check` tells it: then neither another
    store is opened nor a new one made, be it that a disk is not mounted. None takes what is there.
    """

    def __post_init__(self) -> None:
        """Reject what is none."""
        check_options(self)
        if self.store_id is not None and not _STORE_ID.fullmatch(self.store_id):
            allowed = "the 32 hexadecimal digits that `poe check` tells, or 'none'"
            raise OptionError("store_id", self.store_id, allowed)
