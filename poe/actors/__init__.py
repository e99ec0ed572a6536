"""The actor runtime: OTP's behaviours on Thespian's actors.

The only package that knows Thespian. `LoopSystemBase` keeps all actors in one process on one run
queue; `GenServer` adds calls, exit reasons, links and monitors to Thespian's `Actor`.
`HostedSystem` runs the same GenServers on Thespian's own bases, with a process for each actor.
"""

import importlib
from typing import TYPE_CHECKING, Any

from poe.actors.address import ActorRef, LoopAddress
from poe.actors.async_work import AsyncWork
from poe.actors.call import Call
from poe.actors.clock import SimulatedClock
from poe.actors.gen_server import GenServer
from poe.actors.loop_base import LoopSystemBase
from poe.actors.message import (
    HIBERNATE,
    IGNORE,
    NO_REPLY,
    TIMED_OUT,
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
    TIMEOUT,
    ActorExit,
    Reason,
    is_orderly,
)
from poe.actors.reply_deadline import ReplyDeadline
from poe.actors.responder import Responder
from poe.actors.socket_watch import READABLE, SocketWatch
from poe.actors.system_request import ActorStatus, LoggedMessage
from poe.actors.timer_queue import Timer
from poe.actors.work import Work
from poe.errors import (
    ActorDead,
    CallTimeout,
    LoopBaseOnly,
    MailboxFull,
    NotPicklable,
    NotSuspended,
    ProcessStartFailed,
    RemoteFailure,
    StartFailed,
    SystemShutDown,
    TooMuchWork,
)

if TYPE_CHECKING:
    from poe.actors.hosted_system import HostedSystem
    from poe.actors.loopback_tcp import loopback_tcp_system

_LATE = {
    "HostedSystem": "poe.actors.hosted_system",
    "loopback_tcp_system": "poe.actors.loopback_tcp",
}
"""Imported when first used: they load multiprocessing, 3 MB that a node does not need."""

__all__ = [
    "HIBERNATE",
    "IGNORE",
    "KILL",
    "KILLED",
    "NOPROC",
    "NORMAL",
    "NO_REPLY",
    "READABLE",
    "SHUTDOWN",
    "TIMED_OUT",
    "TIMEOUT",
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
    "HostedSystem",
    "IdleTimeout",
    "LoggedMessage",
    "LoopAddress",
    "LoopBaseOnly",
    "LoopSystemBase",
    "MailboxFull",
    "Monitor",
    "NotPicklable",
    "NotSuspended",
    "OsProcess",
    "ProcessStartFailed",
    "Reason",
    "RemoteFailure",
    "Reply",
    "ReplyDeadline",
    "Responder",
    "SimulatedClock",
    "SocketWatch",
    "StartFailed",
    "Stop",
    "SystemShutDown",
    "Timer",
    "TooMuchWork",
    "Work",
    "end_with_parent",
    "is_orderly",
    "loopback_tcp_system",
    "report_failure",
    "report_ready",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as Python has it
    if name in _LATE:
        return getattr(importlib.import_module(_LATE[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
