"""Values to bytes and back, with addresses that lead to the right cell at either end.

An address is pickled as where its actor lives; unpickled it is the receiving host's one address for
this actor, so that addresses of one actor are the same object there. An exception is pickled by
itself: where its class cannot be restored, a `RemoteFailure` with its name and text takes its place
and the rest of the message is not lost.
"""

import io
import pickle
from typing import Any, Protocol

from poe.actors.actor_cell import LoopAddress
from poe.errors import NotPicklable, RemoteFailure


class Places(Protocol):
    """Knows where actors live, and their addresses in this host."""

    def place_of(self, address: LoopAddress) -> tuple[object, int]:
        """Return the route to an actor and its pid, to be sent along with its address."""
        ...

    def address_of(self, place: tuple[object, int], serial: int, label: str) -> LoopAddress:
        """Return the one address that an actor has in this host."""
        ...


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, places: Places, root: object) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._places = places
        self._root = root

    def persistent_id(self, obj: Any) -> object:  # noqa: ANN401 - any value
        """Say how an address or an exception is to be found again; None for all other values."""
        if type(obj) is LoopAddress:
            return "ref", self._places.place_of(obj), obj.serial, obj.label
        if isinstance(obj, BaseException) and obj is not self._root:
            return "error", type(obj).__qualname__, str(obj), _error_bytes(self._places, obj)
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, places: Places) -> None:
        super().__init__(file)
        self._places = places

    def persistent_load(self, pid: Any) -> object:  # noqa: ANN401 - what `persistent_id` gave
        """Return the address, or the exception or what stands for it."""
        if pid[0] == "ref":
            return self._places.address_of(*pid[1:])
        _, name, text, content = pid
        try:
            return _Unpickler(io.BytesIO(content), self._places).load()
        except Exception:  # noqa: BLE001 - a class may raise anything when it is restored
            return RemoteFailure(name, text)


def _error_bytes(places: Places, error: BaseException) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file, places, root=error).dump(error)
    except Exception:  # noqa: BLE001 - its attributes may be anything
        return b""
    return file.getvalue()


def encode(places: Places, value: object) -> bytes:
    """Pickle a value for another host.

    Raises:
        NotPicklable: a part of it cannot leave this process.
    """
    file = io.BytesIO()
    try:
        _Pickler(file, places, root=None).dump(value)
    except Exception as error:
        raise NotPicklable(type(value).__name__, f"{type(error).__name__}: {error}") from error
    return file.getvalue()


def decode(places: Places, content: bytes) -> Any:  # noqa: ANN401 - whatever was sent
    """Restore a value from another host.

    Raises:
        NotPicklable: a part of it is not known in this process.
    """
    try:
        return _Unpickler(io.BytesIO(content), places).load()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise NotPicklable("message", reason) from error
