"""What an exit signal does to a GenServer: it ends, is told, or goes on as if nothing had come.

Source: Erlang/OTP reference manual, "Processes"; `spec/otp.md` §2.5 and §3.
"""

from typing import TYPE_CHECKING

from poe.actors.actor_cell import ActorCell
from poe.actors.actor_end import end_now, stop_with
from poe.actors.message import Exit, ExitSignal, Stop
from poe.actors.reason import KILL, KILLED, NORMAL, is_word

if TYPE_CHECKING:
    from poe.actors.server_cell import ServerCell


def may_wait(cell: "ServerCell", signal: ExitSignal) -> bool:
    """Tell whether a signal is handled in turn: a trapping actor sees it as a message.

    A suspended actor still obeys its parent.
    """
    if cell.is_suspended and _cell_of(signal) is cell.parent:
        return False
    is_kill = is_word(signal.reason, KILL) and not signal.linked
    return bool(cell.instance.trap_exits) and not is_kill


def receive_signal(cell: "ServerCell", signal: ExitSignal) -> None:
    """Obey, trap or ignore an exit signal (OTP's rules, `spec/otp.md` §2.5 and §3)."""
    sender = _cell_of(signal)
    if sender is None and signal.ref is not None:
        return  # nobody sends such a thing
    if signal.linked and (sender is None or sender.instance is not None or not cell.cut(sender)):
        return  # unlinked while the signal was on its way, or no real one
    if is_word(signal.reason, KILL) and not signal.linked:
        end_now(cell, KILLED)
    elif not cell.instance.trap_exits:
        if not is_word(signal.reason, NORMAL) or sender is cell:
            end_now(cell, signal.reason)
    elif sender is cell.parent:
        stop_with(cell, Stop(signal.reason))
    else:
        cell.handle(None, cell.instance.handle_info, Exit(signal.ref, signal.reason))


def _cell_of(signal: ExitSignal) -> ActorCell | None:
    """Return who sent a signal; None for an application thread, and for what is no address."""
    return getattr(signal.ref, "cell", None)
