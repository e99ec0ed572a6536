"""The actor runtime: OTP's behaviours on Thespian's actors.

The only package that knows Thespian. `LoopSystemBase` keeps all actors in one process on one run
queue; `GenServer` adds calls, exit reasons, links and monitors to Thespian's `Actor`.
"""

from poe.actors.address import ActorRef, LoopAddress
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
from poe.actors.reason import (
    CRASHES,
    KILL,
    KILLED,
    NOPROC,
    NORMAL,
    SHUTDOWN,
    ActorExit,
    Reason,
    is_orderly,
)
from poe.actors.socket_watch import READABLE, SocketWatch
from poe.actors.timer_queue import Timer
from poe.actors.work import Work
from poe.errors import ActorDead, CallTimeout, MailboxFull, NotSuspended, StartFailed

__all__ = [
    "CRASHES",
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
    "ActorDead",
    "ActorExit",
    "ActorRef",
    "Call",
    "CallTimeout",
    "Continue",
    "Down",
    "Error",
    "Exit",
    "GenServer",
    "IdleTimeout",
    "LoopAddress",
    "LoopSystemBase",
    "MailboxFull",
    "Monitor",
    "NotSuspended",
    "Reason",
    "Reply",
    "SimulatedClock",
    "SocketWatch",
    "StartFailed",
    "Stop",
    "Timer",
    "Work",
    "is_orderly",
]
