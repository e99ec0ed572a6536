"""The actor runtime: OTP's `gen_server`, exit reasons, links, monitors and names.

`LoopSystem` keeps all actors in one process on one run queue; each is an object of a subclass of
`GenServer`. `poe.thespian` runs the same classes with a process for each actor.
"""

from poe.actors.actor_cell import LoopAddress
from poe.actors.actor_status import ActorStatus, LoggedMessage
from poe.actors.async_work import AsyncWork
from poe.actors.call import Call
from poe.actors.gen_server import GenServer
from poe.actors.loop_system import LoopSystem
from poe.actors.mailslot import Mailslot
from poe.actors.message import (
    HIBERNATE,
    IGNORE,
    NO_REPLY,
    TIMED_OUT,
    ActorRef,
    Continue,
    Down,
    Error,
    Exit,
    IdleTimeout,
    Monitor,
    Reply,
    Stop,
)
from poe.actors.os_process import GetPid, OsProcess
from poe.actors.parent_process import end_with_parent, report_failure, report_ready
from poe.actors.reason import (
    KILL,
    KILLED,
    NOPROC,
    NORMAL,
    SHUTDOWN,
    ActorExit,
    Reason,
    is_orderly,
)
from poe.actors.timer_queue import Timer
from poe.actors.work import Work
from poe.errors import (
    ActorDead,
    CallTimeout,
    MailboxFull,
    NotSuspended,
    ProcessStartFailed,
    StartFailed,
    SystemShutDown,
    TooMuchWork,
)

__all__ = [
    "HIBERNATE",
    "IGNORE",
    "KILL",
    "KILLED",
    "NOPROC",
    "NORMAL",
    "NO_REPLY",
    "SHUTDOWN",
    "TIMED_OUT",
    "ActorDead",
    "ActorExit",
    "ActorRef",
    "ActorStatus",
    "AsyncWork",
    "Call",
    "CallTimeout",
    "Continue",
    "Down",
    "Error",
    "Exit",
    "GenServer",
    "GetPid",
    "IdleTimeout",
    "LoggedMessage",
    "LoopAddress",
    "LoopSystem",
    "MailboxFull",
    "Mailslot",
    "Monitor",
    "NotSuspended",
    "OsProcess",
    "ProcessStartFailed",
    "Reason",
    "Reply",
    "StartFailed",
    "Stop",
    "SystemShutDown",
    "Timer",
    "TooMuchWork",
    "Work",
    "end_with_parent",
    "is_orderly",
    "report_failure",
    "report_ready",
]
