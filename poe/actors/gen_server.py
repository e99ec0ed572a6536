"""GenServer: an actor with OTP's callbacks, calls, exit reasons, links and monitors.

The class is what a user writes a subclass of: callbacks to override, operations to use in them.
What runs it is its cell, a `ServerCell`. A callback may be `async def`: while it awaits a call,
*this* actor's further messages wait in its mailbox, as an Erlang process's do, and nobody else
waits.

Source: OTP `gen_server`, `proc_lib`; differences: state is the instance's attributes, so callbacks
return only what is to happen next.
"""

from thespian.actors import Actor

from poe.actors.gen_server_callbacks import GenServerCallbacks


class GenServer(GenServerCallbacks, Actor):  # type: ignore[misc]  # Thespian is untyped
    """Base class of all actors of Poe.

    Override the callbacks you need (`init`, `handle_call`, `handle_cast`, `handle_info`,
    `handle_continue`, `terminate`) and use the other methods in them; keep state in attributes. At
    any time at most one callback runs. While it awaits something, messages wait in the mailbox.

    Any name is free for an attribute, but `_myRef`, which is Thespian's: the runtime keeps nothing
    else in the object. An attribute or method that is called as one of the methods here hides it
    from this class's own callbacks, and from nobody else; `ref`, `name` and `parent` cannot be set.

    Life: `init` - callbacks - `terminate` (if the actor stops by itself, or traps exits and its
    parent asks) - end. `terminate` does not run when the actor is killed, nor when it does not
    trap exits and gets an exit signal.
    """
