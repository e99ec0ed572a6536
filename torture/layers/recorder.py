"""Records everything that is done to files, with the bytes, so that each moment can be rebuilt."""

import mmap
from dataclasses import dataclass
from typing import Any, Literal

from poe.storage import Files
from torture.checker import Put
from torture.layers.watched import Operation, WatchedFiles

Kind = Literal[
    "make",
    "write",
    "store",
    "truncate",
    "sync",
    "rename",
    "unlink",
    "make_folder",
    "remove_folder",
    "sync_folder",
    "sync_all",
    "ack",
]


@dataclass(frozen=True, slots=True)
class Event:
    """One change, or a promise that something lasts.

    A `store` goes through a map: unlike a write it is whole, or not there.
    """

    kind: Kind
    path: str = ""
    data: bytes = b""
    offset: int = 0
    """Of a write; the size of a truncation."""

    new_path: str = ""
    put: Put | None = None
    pointer: int = 0


class Recorder:
    """A file layer (`files`) and the `events` that went through it."""

    def __init__(self, files: Files) -> None:
        self.events: list[Event] = []
        self.files = WatchedFiles(files, self._before, self._after)
        self._real = files
        self._is_new = False
        self._maps: dict[str, tuple[mmap.mmap, bytes]] = {}

    def ack(self, put: Put, pointer: int) -> None:
        """Note that a put was acknowledged."""
        self._note_stores()
        self.events.append(Event("ack", put=put, pointer=pointer))

    def _before(self, operation: Operation) -> None:
        self._note_stores()
        if operation.name in {"open", "lock"}:
            self._is_new = self._real.size(operation.path) is None

    def _after(self, operation: Operation, result: Any) -> None:
        path, arguments = operation.path, operation.arguments
        match operation.name:
            case "open" | "lock" if self._is_new:
                self.events.append(Event("make", path))
            case "open" if arguments[-1] == "w+":
                self.events.append(Event("truncate", path))
            case "write_at":
                self.events.append(Event("write", path, bytes(arguments[0]), arguments[1]))
            case "truncate":
                self.events.append(Event("truncate", path, offset=arguments[0]))
            case "allocate":
                self.events.append(Event("write", path, b"", arguments[0]))
            case "rename":
                self.events.append(Event("rename", path, new_path=arguments[1]))
            case "make_folder" if not result:
                pass
            case (
                "sync" | "sync_folder" | "sync_all" | "unlink" | "remove_folder" | "make_folder"
            ) as kind:
                self.events.append(Event(kind, path))
            case "map_writable":
                self._maps[path] = (result, result[:])
            case _:
                pass

    def _note_stores(self) -> None:
        """Note what was stored through maps since the last event; no call tells of it."""
        for path, (mapped, before) in self._maps.items():
            content = mapped[:]
            if content != before:
                self._maps[path] = (mapped, content)
                self.events.append(Event("store", path, content))
