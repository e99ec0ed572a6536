"""The one tree of errors: every failure that Poe reports is a `PoeError` with a code.

The message of an error is one sentence that holds the value, the limit and the way out; the values
are attributes too. The code travels on the wire and is never reused. "Nothing there yet" is no
error: it is a value (None, an empty list).

Ranges of codes: 1xx configuration, 2xx storage, 3xx protocol, 4xx broker, 5xx delivery, 6xx actors,
7xx supervision.
"""

from typing import ClassVar


class PoeError(Exception):
    """Root of all errors that Poe raises on purpose."""

    code: ClassVar[int] = 1
    retriable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the sentence and the attributes; a subclass's own arguments are not kept."""
        return _restored, (type(self), self.args, vars(self))


def _restored(
    kind: type[PoeError], args: tuple[object, ...], attributes: dict[str, object]
) -> PoeError:
    """Make an error from its pickled parts, without the constructor that made its sentence."""
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error


def _shown(topic: bytes) -> str:
    """Return the topic's name in quotes, with whatever could break the line escaped."""
    return repr(topic.decode("utf-8", "backslashreplace"))


class ConfigError(PoeError):
    """A configuration that cannot be used."""

    code = 100


class OptionError(ConfigError):
    """One option has an unknown name or a value that is not allowed."""

    code = 101

    def __init__(self, key: str, value: object, allowed: str) -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        super().__init__(f"option {key!r} is {value!r}; use {allowed}")


class UnknownOption(OptionError):
    """An option of this name does not exist."""

    code = 102

    def __init__(self, key: str, allowed: str) -> None:
        self.key = key
        self.value = None
        self.allowed = allowed
        ConfigError.__init__(self, f"option {key!r} is not known; use {allowed}")


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
    """Another live program has the segment open for writing."""

    code = 202

    def __init__(self, path: str, owner: str = "another program") -> None:
        self.path = path
        self.owner = owner
        super().__init__(f"segment {path} is in use by {owner}; stop it first")


class CorruptRecord(StorageError):
    """The bytes at an offset are no record, or not the one that belongs there.

    `pointer` is that of the damaged record where it is known: reading behind it goes on.
    """

    code = 203

    def __init__(self, path: str, offset: int, pointer: int | None = None) -> None:
        self.path = path
        self.offset = offset
        self.pointer = pointer
        way_on = "" if pointer is None else f"what follows can be read from pointer {pointer} on; "
        super().__init__(
            f"no valid record at offset {offset} of {path}; {way_on}"
            "stop the server and run `poe check` to see all damage"
        )


class StoreLocked(StorageError):
    """Another server runs on the same base folder."""

    code = 204

    def __init__(self, path: str, pid: int | None) -> None:
        self.path = path
        self.pid = pid
        owner = "another server" if pid is None else f"the server with pid {pid}"
        super().__init__(f"folder {path} is in use by {owner}; stop it or use another dir")


class InvalidTopicName(StorageError):
    """A topic name that cannot safely become a folder name."""

    code = 205

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        super().__init__(
            f"topic name {_shown(topic[:60])} is not allowed; use 1 to 200 of A-Z a-z 0-9 . _ - "
            "without a leading dot"
        )


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
    """A topic cannot be opened or repaired; other topics work, and each request tries again."""

    code = 211
    retriable = True

    def __init__(self, topic: bytes, reason: str) -> None:
        self.topic = topic
        self.reason = reason
        super().__init__(f"topic {_shown(topic)} is out of service: {reason}")


class SyncFailed(StorageError):
    """A sync failed: the batch is stored, but may not survive a power cut."""

    code = 212

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"{path} may lose this batch in a power cut ({reason}); put it again, it may then be "
            "there twice"
        )


class NoDescriptors(StorageError):
    """The process may open no more files; nothing was done."""

    code = 219
    retriable = True

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"cannot open {path}: {reason}; retry later, raise the limit on open files, or lower "
            "connections_max"
        )


class ProtocolError(PoeError):
    """Bytes or calls that break the socket protocol."""

    code = 300


class LocalProtocolError(ProtocolError):
    """We were asked to send what the protocol does not allow."""

    code = 301


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol does not allow."""

    code = 302


class FrameTooLarge(RemoteProtocolError):
    """The peer announces a frame that exceeds `frame_max`."""

    code = 303

    def __init__(self, size_bytes: int, frame_max: int) -> None:
        self.size_bytes = size_bytes
        self.frame_max = frame_max
        super().__init__(
            f"frame of {size_bytes} bytes is refused; send at most {frame_max} (option frame_max)"
        )


class ConnectionClosed(ProtocolError):
    """The peer closed the connection; a request under way may have been done."""

    code = 304


class ServerError(ProtocolError):
    """The server answered with an error frame whose code this client does not know."""

    code = 305

    def __init__(self, remote_code: int, name: str, message: str) -> None:
        self.remote_code = remote_code
        self.name = name
        super().__init__(f"server says {name} ({remote_code}): {message}")


class ConnectFailed(ProtocolError):
    """No server could be reached at the address; nothing was sent."""

    code = 306
    retriable = True

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        self.reason = reason
        super().__init__(
            f"cannot reach a server at {host}:{port} ({reason}); check the address, and that it "
            "runs"
        )


class BrokerError(PoeError):
    """The node cannot serve the request."""

    code = 400


class UnknownTopic(BrokerError):
    """Nothing was ever put onto the topic, or all of it has expired."""

    code = 401

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        super().__init__(f"topic {_shown(topic)} is not known; put a message onto it first")


class Overloaded(BrokerError):
    """A named limit is reached; the request was not done."""

    code = 403
    retriable = True

    def __init__(self, limit: str, value: int) -> None:
        self.limit = limit
        self.value = value
        super().__init__(f"limit {limit} of {value} is reached; retry later or raise it")


class TopicUnavailable(BrokerError):
    """The topic is being repaired or rotated, and that takes too long; the request was not done."""

    code = 407
    retriable = True

    def __init__(self, topic: bytes, waited_s: float) -> None:
        self.topic = topic
        self.waited_s = waited_s
        super().__init__(
            f"no appendix server has answered for topic {_shown(topic)} for {waited_s} s; "
            "retry later"
        )


class TopicNotCreated(BrokerError):
    """A put onto a topic that does not exist, on a node where puts make no topics."""

    code = 408

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        super().__init__(
            f"topic {_shown(topic)} does not exist; make it with the control request create, "
            "or set auto_create"
        )


class NodeNotRunning(BrokerError):
    """The module functions were used before `poe.start` or after `poe.stop`."""

    code = 404

    def __init__(self) -> None:
        super().__init__("no node is running; call poe.start() first")


class PortInUse(BrokerError):
    """The listener's address is taken."""

    code = 405

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        super().__init__(
            f"cannot listen on {host}:{port} ({reason}); use another port, or 0 for any"
        )


class NodeRunning(BrokerError):
    """`poe.start` was used twice."""

    code = 406

    def __init__(self) -> None:
        super().__init__("a node runs already; call poe.stop() first, or use poe.Node for another")


class ActorError(PoeError):
    """An actor cannot be reached or did not answer."""

    code = 600


class ActorDead(ActorError):
    """The actor ended before it answered."""

    code = 601

    def __init__(self, ref: object, reason: object) -> None:
        self.ref = ref
        self.reason = reason
        super().__init__(f"{ref} is not alive: {reason!r}")


class CallTimeout(ActorError):
    """No answer came in time; the work may have been done, or may still be."""

    code = 602

    def __init__(self, ref: object, timeout_s: float) -> None:
        self.ref = ref
        self.timeout_s = timeout_s
        super().__init__(f"{ref} did not answer within {timeout_s} s; the work may have been done")


class MailboxFull(ActorError):
    """The receiver has as many messages waiting as it accepts."""

    code = 603
    retriable = True

    def __init__(self, ref: object, mailbox_max: int) -> None:
        self.ref = ref
        self.mailbox_max = mailbox_max
        super().__init__(f"mailbox of {ref} holds {mailbox_max} messages; retry later")


class NameTaken(ActorError):
    """Another live actor is registered under the name."""

    code = 604

    def __init__(self, name: str, ref: object) -> None:
        self.name = name
        self.ref = ref
        super().__init__(f"name {name!r} is taken by {ref}")


class StartFailed(ActorError):
    """An actor's `init` failed or asked to stop; `reason` says why."""

    code = 605

    def __init__(self, reason: object) -> None:
        self.reason = reason
        super().__init__(f"the actor did not start: {reason!r}")


class CallFromActor(ActorError):
    """The blocking interface for application threads was used inside an actor."""

    code = 606

    def __init__(self) -> None:
        super().__init__("an actor must not block its system; use `await self.call(...)` here")


class NotSuspended(ActorError):
    """An actor's code is changed only while it is suspended."""

    code = 607

    def __init__(self, ref: object) -> None:
        self.ref = ref
        super().__init__(f"{ref} is not suspended; suspend it, change its code, and resume it")


class SupervisionError(PoeError):
    """A supervisor cannot do what was asked."""

    code = 700


class InvalidChildSpec(SupervisionError):
    """A child spec or a supervisor flag is wrong; the message names the field."""

    code = 701

    def __init__(self, message: str, key: str | tuple[str, ...] = "", value: object = None) -> None:
        self.key = key
        """The field that is wrong; several where they do not fit each other; "" for none."""
        self.value = value
        """What it holds; as many values as `key` has fields."""
        super().__init__(message)


class ChildStartFailed(SupervisionError):
    """A child did not start."""

    code = 702

    def __init__(self, child_id: object, reason: object) -> None:
        self.child_id = child_id
        self.reason = reason
        super().__init__(f"child {child_id!r} did not start: {reason!r}")


class IntensityExceeded(SupervisionError):
    """A supervisor restarted more children than its intensity allows, and gave up."""

    code = 703

    def __init__(self, child_id: object, restarts: int, period_s: float) -> None:
        self.child_id = child_id
        self.restarts = restarts
        self.period_s = period_s
        super().__init__(f"child {child_id!r}: {restarts} restarts within {period_s} s")


class ChildRequestRefused(SupervisionError):
    """A supervisor does not do what was asked of it for a child in its present state."""

    code = 704

    def __init__(self, child_id: object, why: str, way_out: str, ref: object = None) -> None:
        self.child_id = child_id
        self.why = why
        self.ref = ref
        super().__init__(f"child {child_id!r}: {why}; {way_out}")


class UnknownRequest(SupervisionError):
    """A supervisor was called with something that is none of its requests."""

    code = 705

    def __init__(self, request_type: str) -> None:
        self.request_type = request_type
        super().__init__(f"a supervisor has no request {request_type}; see poe.supervision")


class TableError(ActorError):
    """A table of actors cannot do what was asked."""

    code = 620


class TableGone(TableError):
    """There is no such table: it was deleted, or its owner has ended."""

    code = 621

    def __init__(self, name: str | None) -> None:
        self.name = name
        super().__init__(f"table {name!r} is gone: it was deleted, or its owner has ended")


class TableAccessDenied(TableError):
    """The table's access keeps this actor from the operation."""

    code = 622

    def __init__(self, name: str | None, access: str, operation: str) -> None:
        self.name = name
        self.access = access
        self.operation = operation
        super().__init__(f"table {name!r} is {access}: only its owner may {operation} it")


class TableNameTaken(TableError):
    """Another table has the name."""

    code = 623

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"table name {name!r} is taken; delete that table or use another name")


class InvalidTableArgument(TableError):
    """A row, key, index or pattern that the table has no use for."""

    code = 624

    def __init__(self, argument: str, value: object, allowed: str) -> None:
        self.argument = argument
        self.value = value
        self.allowed = allowed
        # Only numbers are shown: anything else may hold what does not belong into a log.
        shown = str(value) if isinstance(value, int | float) else f"of type {type(value).__name__}"
        super().__init__(f"{argument} is {shown}; use {allowed}")
