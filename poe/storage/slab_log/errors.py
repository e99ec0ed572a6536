"""The errors that only a slab log has; part of the tree in `poe.errors`, with codes of its 2xx.

They stand here since no other part of Poe raises them and they never travel on the wire.
"""

from poe.errors import CorruptRecord, InvalidMessage, StorageError


class CorruptSlabRecord(CorruptRecord):
    """The bytes at an address of a slab log are no record, or not those that were written there.

    `next_address` is where the next good record begins, or the damage is known to end.
    """

    code = 213

    def __init__(self, path: str, address: int, next_address: int) -> None:
        self.path = path
        self.offset = self.address = address
        self.pointer = self.next_address = next_address
        StorageError.__init__(
            self,
            f"no valid record at address {address} of {path}; seek({next_address}) to go on "
            "behind the damage",
        )


class OutOfBounds(StorageError):
    """The address lies before the oldest slab that is left, or behind the end of the log."""

    code = 214

    def __init__(self, path: str, address: int, lowest: int, highest: int) -> None:
        self.path = path
        self.address = address
        self.lowest = lowest
        self.highest = highest
        super().__init__(f"address {address} is not in {path}; use {lowest} to {highest}")


class EndOfLog(StorageError):
    """Nothing follows yet; the reader stays where it is."""

    code = 215
    retriable = True

    def __init__(self, path: str, address: int) -> None:
        self.path = path
        self.address = address
        super().__init__(f"nothing at address {address} of {path} yet; read again later")


class LogClosed(StorageError):
    """The writer was closed."""

    code = 216

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"the writer of {path} is closed; open another one")


class MessageTooLarge(InvalidMessage):
    """A message is larger than `message_max`; here it may be empty."""

    code = 217

    def __init__(self, size_bytes: int, message_max: int) -> None:
        self.size_bytes = size_bytes
        self.message_max = message_max
        StorageError.__init__(
            self,
            f"message of {size_bytes} bytes is refused; use 0 to {message_max} "
            "(option message_max)",
        )
