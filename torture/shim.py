"""System calls that fail in a server, chosen while it runs: the other side of `shim.c`."""

import mmap
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

Call = Literal[
    "pwrite", "sync", "open", "rename", "unlink", "truncate", "mmap", "sendfile", "pread"
]
CALLS: tuple[Call, ...] = get_args(Call)
SHORT = 0
"""Stands for an error number: the call does half."""

_HANG = -1
_NUMBER = struct.Struct("=q")
_FAILED_AT, _SEEN_AT = 4, 5


class Shim:
    """Lets calls on files below a folder fail, in the processes that have its `environment`."""

    def __init__(self, folder: Path, base: Path) -> None:
        """Compile it; `folder` is where its own files go, `base` is whose files fail."""
        library = folder / "shim.so"
        source = Path(__file__).with_name("shim.c")
        command = ["gcc", "-O1", "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(command, check=True)
        control = folder / "shim-control"
        control.write_bytes(bytes(mmap.PAGESIZE))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "TORTURE_CONTROL": str(control),
            "TORTURE_BASE": str(base.resolve()),
        }
        self.heal()

    def fail(self, call: Call, nth: int, error_number: int, *, is_for_ever: bool) -> None:
        """Let the call fail that `nth` others of its kind go before, from now on."""
        kind = CALLS.index(call)
        self._put(3, is_for_ever)
        self._put(2, error_number)
        self._put(1, self._get(_SEEN_AT + kind) + nth)
        self._put(_FAILED_AT, 0)
        self._put(0, kind)

    def hang(self, call: Call) -> None:
        """Let each call of a kind wait until `heal`, and work then."""
        self.fail(call, 0, _HANG, is_for_ever=True)

    def heal(self) -> None:
        """Let everything work."""
        self._put(0, -1)

    @property
    def failed_count(self) -> int:
        """How many calls have failed, or hung, since they were told to."""
        return self._get(_FAILED_AT)

    def seen_count(self, call: Call) -> int:
        """How many calls there were in all."""
        return self._get(_SEEN_AT + CALLS.index(call))

    def _get(self, at: int) -> int:
        number: int = _NUMBER.unpack_from(self._control, 8 * at)[0]
        return number

    def _put(self, at: int, value: int) -> None:
        _NUMBER.pack_into(self._control, 8 * at, value)
