"""2xx: what storage refuses, or the disk refused."""

from poe.errors.root import PoeError, shown


class StorageError(PoeError):
    """The files cannot do what was asked."""

    code = 200


class PointerOutOfRange(StorageError):
    """A pointer is negative or needs more than 56 bits."""

    code = 201

    def __init__(self, pointer: int, oldest: int = 0) -> None:
        self.pointer = pointer
        self.oldest = oldest
        super().__init__(f"pointer {pointer} is out of range; use {oldest} to 2^56 - 1")


class SegmentLocked(StorageError):
    """Another live program has the segment open for writing, or one may that cannot be seen."""

    code = 202

    def __init__(
        self, path: str, owner: str = "another program", way_out: str = "stop it first"
    ) -> None:
        self.path = path
        self.owner = owner
        super().__init__(f"segment {path} is in use by {owner}; {way_out}")


class CorruptRecord(StorageError):
    """The bytes at an offset are no record, or not the one that belongs there.

    Damaged are records with pointers from `pointer_low` to `pointer`, where that is known: reading
    behind it goes on.
    """

    code = 203

    def __init__(
        self, path: str, offset: int, pointer: int | None = None, pointer_low: int | None = None
    ) -> None:
        self.path = path
        self.offset = offset
        self.pointer = pointer
        self.pointer_low = pointer if pointer_low is None else pointer_low
        way_on = ""
        if pointer is not None:
            way_on = (
                f"pointers {self.pointer_low} to {pointer} are damaged, and what follows can be "
                f"read from pointer {pointer} on; "
            )
        super().__init__(
            f"no valid record at offset {offset} of {path}; {way_on}"
            "stop the server and run `poe check` to see all damage"
        )


class StoreLocked(StorageError):
    """Another server runs on the same base folder, or somebody checks it."""

    code = 204

    def __init__(self, path: str, pid: int | None) -> None:
        self.path = path
        self.pid = pid
        unknown = "another server, or by `poe check`"
        owner = unknown if pid is None else f"the server with pid {pid}"
        super().__init__(f"folder {path} is in use by {owner}; stop it or use another dir")


class InvalidTopicName(StorageError):
    """A topic name that cannot safely become a folder name; `names` is the server's policy."""

    code = 205

    def __init__(self, topic: bytes, names: str = "strict") -> None:
        self.topic = topic
        self.names = names
        allowed = "1 to 200 of A-Z a-z 0-9 . _ - without a leading dot"
        if names == "strict":
            allowed += ", or set the server's option names to escape"
        else:
            allowed += ", or any that has 1 to 255 bytes when each other byte is written as %XX"
        super().__init__(f"topic name {shown(topic[:60])} is not allowed; use {allowed}")


class StorageFull(StorageError):
    """The disk has no room for the batch; nothing of it was stored."""

    code = 206
    retriable = True

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"no room to write {path} ({reason}); free space and retry")


class InvalidMessage(StorageError):
    """A message is empty or larger than `message_max`."""

    code = 207

    def __init__(self, size_bytes: int, message_max: int) -> None:
        self.size_bytes = size_bytes
        self.message_max = message_max
        super().__init__(
            f"message of {size_bytes} bytes is refused; use 1 to {message_max} (option message_max)"
        )


class WriteFailed(StorageError):
    """A write failed for a reason other than lack of space; nothing of the batch was stored."""

    code = 208

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"cannot write {path}: {reason}; see the system's log")


class SegmentSealed(StorageError):
    """The segment takes no more messages; its topic has, or gets, a newer one."""

    code = 209
    retriable = True

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"segment {path} is sealed; put to the newest segment of its topic")


class ReadFailed(StorageError):
    """Files that should be there cannot be opened or read."""

    code = 210

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"cannot read {path}: {reason}; see the system's log")


class TopicFailed(StorageError):
    """A topic cannot be opened or repaired, or its writer goes on crashing; other topics work.

    Each request tries again, but for puts in the minute of the crashes.
    """

    code = 211
    retriable = True

    def __init__(self, topic: bytes, reason: str) -> None:
        self.topic = topic
        self.reason = reason
        super().__init__(f"topic {shown(topic)} is out of service: {reason}")


class SyncFailed(StorageError):
    """A sync failed: the batch may be stored, or be gone, now or after a power cut."""

    code = 212

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"{path} may lose this batch in a power cut ({reason}); put it again, it may then be "
            "there twice"
        )


class SequenceGap(StorageError):
    """A sequenced put is not the next one of its producer; nothing was stored."""

    code = 226

    def __init__(self, producer: bytes, epoch: int, sequence: int, expected: int) -> None:
        self.producer = producer
        self.epoch = epoch
        self.sequence = sequence
        self.expected = expected
        super().__init__(
            f"put {sequence} of producer {producer.hex()} in epoch {epoch} is refused; put "
            f"{expected} next, or begin a greater epoch with 0"
        )


class RepeatedPut(StorageError):
    """A sequenced put is stored, and its pointer not known any more: it has succeeded."""

    code = 227

    def __init__(self, producer: bytes, epoch: int, sequence: int) -> None:
        self.producer = producer
        self.epoch = epoch
        self.sequence = sequence
        super().__init__(
            f"put {sequence} of producer {producer.hex()} in epoch {epoch} is stored already, at a "
            "pointer that is not known any more; go on with the next one"
        )


class ProducerFenced(StorageError):
    """Another process goes on as this producer, in a greater epoch; nothing was stored."""

    code = 228

    def __init__(self, producer: bytes, epoch: int, newest_epoch: int) -> None:
        self.producer = producer
        self.epoch = epoch
        self.newest_epoch = newest_epoch
        super().__init__(
            f"epoch {epoch} of producer {producer.hex()} is over, since another process puts in "
            f"epoch {newest_epoch}; stop putting here, or begin a greater one"
        )


class FormatNotSupported(StorageError):
    """A file is of a format that this version does not write; it is left as it is."""

    code = 218

    def __init__(self, path: str, found: str) -> None:
        self.path = path
        self.found = found
        super().__init__(f"format of {path} is not known ({found}); use a newer version of poe")


class TopicDamaged(StorageError):
    """Data of a topic was lost or changed, and with `recovery="strict"` it takes no more puts."""

    code = 219

    def __init__(self, path: str, damage: str) -> None:
        self.path = path
        self.damage = damage
        super().__init__(
            f"segment {path} is damaged ({damage}), and takes no messages with recovery=strict; "
            "restore it from a copy, or use another recovery"
        )


class NoDescriptors(StorageError):
    """The process may open no more files; nothing was done."""

    code = 220
    retriable = True

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"cannot open {path}: {reason}; retry later, raise the limit on open files, or lower "
            "connections_max"
        )


class TopicReadOnly(StorageError):
    """The disk has failed two segments of a topic, one after the other; nothing was stored."""

    code = 225
    retriable = True

    def __init__(self, topic: bytes, reason: str) -> None:
        self.topic = topic
        self.reason = reason
        super().__init__(
            f"topic {shown(topic)} can only be read, since its disk has failed: {reason}; mend the "
            "disk, then put again (a new segment is tried once a second)"
        )


class StoreGone(StorageError):
    """The folder of a running server was removed, renamed or replaced; nothing was stored."""

    code = 229
    retriable = True

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"folder {path} is not the one that this server works on: it was removed, renamed or "
            "replaced; bring it back, or restart the server"
        )
