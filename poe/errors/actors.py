"""6xx: actors, processes and tables."""

from poe.errors.root import PoeError
from poe.errors.short_text import short_repr


class ActorError(PoeError):
    """An actor cannot be reached or did not answer."""

    code = 600


class ActorDead(ActorError):
    """The actor ended before it answered."""

    code = 601

    def __init__(self, ref: object, reason: object) -> None:
        self.ref = ref
        self.reason = reason
        super().__init__(f"{ref} is not alive: {short_repr(reason)}")


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


class TooMuchWork(ActorError):
    """An actor has as much blocking work that is not done as it may have."""

    code = 613
    retriable = True

    def __init__(self, ref: object, work_max: int) -> None:
        self.ref = ref
        self.work_max = work_max
        super().__init__(f"{ref} has {work_max} works that are not done; retry when some are")


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
        super().__init__(f"the actor did not start: {short_repr(reason)}")


class CallFromActor(ActorError):
    """The blocking interface for application threads was used inside an actor."""

    code = 606

    def __init__(self) -> None:
        super().__init__(
            "the system's own methods are not for use inside an actor, which must not block; use "
            "`await self.call(...)`, `self.cast(...)`, `await self.start_link(...)` here"
        )


class NotSuspended(ActorError):
    """An actor's code is changed only while it is suspended."""

    code = 607

    def __init__(self, ref: object) -> None:
        self.ref = ref
        super().__init__(f"{ref} is not suspended; suspend it, change its code, and resume it")


class ProcessStartFailed(ActorError):
    """A process could not be run, or did not become ready.

    `why` is a sentence, or the reason of its end as `OsProcess` has it; `report` is what it said.
    """

    code = 608

    def __init__(self, program: str, why: object, report: str = "") -> None:
        self.program = program
        self.why = why
        self.report = report
        words = " ".join(map(str, why)) if isinstance(why, tuple) else str(why)
        way_on = report or "see what it wrote to its log"
        super().__init__(f"process {program} did not start ({words}): {way_on}")


class NotPicklable(ActorError):
    """A value cannot travel to an actor in another host; its receiver is not harmed."""

    code = 609

    def __init__(self, value_type: str, reason: str) -> None:
        self.value_type = value_type
        self.reason = reason
        super().__init__(
            f"{value_type} cannot be sent to another process ({reason}); use values, classes and "
            "functions that every process can import"
        )


class RemoteFailure(ActorError):
    """Stands for an exception of another process whose class cannot be restored in this one."""

    code = 610

    def __init__(self, error_type: str, text: str) -> None:
        self.error_type = error_type
        self.text = text
        super().__init__(f"{error_type}: {text}")


class LoopSystemOnly(ActorError):
    """An operation that needs all actors in one process was used on another system base."""

    code = 611

    def __init__(self, operation: str, way_out: str) -> None:
        self.operation = operation
        self.way_out = way_out
        super().__init__(f"{operation} works on LoopSystem only; {way_out}")


class SystemShutDown(ActorDead):
    """The actor, or a new one, cannot run: its system was shut down."""

    code = 612

    def __init__(self, ref: object) -> None:
        super().__init__(ref, "noproc")
        self.args = (f"{ref}: this system was shut down; make a new one",)


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
