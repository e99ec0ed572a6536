"""What a GenServer overrides: the callbacks, the settings, and how its state is seen.

Each callback has a default that tells a programmer what is missing. Any of them may be `async def`.
What a callback returns says what comes next: `Continue`, `IdleTimeout` and `HIBERNATE` may be
returned by each of them but `terminate`, and by `handle_call` with an answer: `Reply(value, then)`.

Source: OTP `gen_server`; a missing callback ends the actor as `undef` does, but for `handle_info`
and `terminate`, which are optional there too.
"""

import logging
from typing import Any, ClassVar

from poe.actors.call import Call
from poe.actors.gen_server_operations import GenServerOperations
from poe.actors.reason import Reason

logger = logging.getLogger("poe.actors")


class GenServerCallbacks(GenServerOperations):
    """The part of `GenServer` that a subclass replaces."""

    trap_exits: bool = False
    """Exit signals become `Exit` messages; the parent's one runs `terminate`."""

    mailbox_max: ClassVar[int] = 65_536
    """Messages that may wait while a callback is suspended; the sender of one more gets
    `MailboxFull`."""

    hibernate_after_s: ClassVar[float | None] = None
    """Seconds without a message after which the actor hibernates by itself; None: it does not."""

    colocated: ClassVar[bool] = False
    """On bases with a process for each actor: run in that of the actor which starts this one."""

    pinned_to_loop: ClassVar[bool] = False
    """Run in the event loop's thread only; needed by actors that own sockets."""

    def __init_subclass__(cls, **kwargs: Any) -> None:  # noqa: ANN401 - as Python passes them
        """Refuse settings with which an actor could not work.

        Raises:
            ValueError: `mailbox_max` or `hibernate_after_s` is out of range.
        """
        super().__init_subclass__(**kwargs)
        mailbox_max: object = cls.mailbox_max
        if not (isinstance(mailbox_max, int) and mailbox_max >= 1):
            msg = f"{cls.__name__}: mailbox_max is {mailbox_max!r}; use an integer, 1 or more"
            raise ValueError(msg)
        after_s: object = cls.hibernate_after_s
        if after_s is not None and not (isinstance(after_s, int | float) and after_s >= 0):
            msg = f"{cls.__name__}: hibernate_after_s is {after_s!r}; use 0 or more, or None"
            raise ValueError(msg)

    def init(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - may be a coroutine
        """Set up the state; override it with the parameters that `start_link` is to be given.

        Returns None, what comes next, `Stop(reason)` or `IGNORE`; after anything else the start has
        failed with reason `("bad_return_value", value)`.
        """
        if args or kwargs:
            msg = f"{type(self).__name__} has no init, so it takes no arguments"
            raise TypeError(msg)

    def handle_call(self, request: Any, caller: Call) -> Any:  # noqa: ANN401
        """Answer a request: return the reply, `NO_REPLY`, `Reply`, `Error` or `Stop`."""
        del caller
        msg = f"{type(self).__name__} has no handle_call for {type(request).__name__}"
        raise TypeError(msg)

    def handle_cast(self, message: Any) -> Any:  # noqa: ANN401
        """Take a message that expects no answer; return None, what comes next, or `Stop`.

        Any other value is dropped, from `handle_info` too: a check would slow every message down.
        """
        msg = f"{type(self).__name__} has no handle_cast for {type(message).__name__}"
        raise TypeError(msg)

    def handle_info(self, message: Any) -> Any:  # noqa: ANN401
        """Take any other message, also `Exit`, `Down`, `TIMED_OUT`; log and drop it by default."""
        logger.warning("%s dropped an unexpected %s", self._myRef.address, type(message).__name__)

    def handle_continue(self, argument: Any) -> Any:  # noqa: ANN401
        """Go on after a callback that returned `Continue`, before any other message."""
        msg = f"{type(self).__name__} has no handle_continue for {argument!r}"
        raise TypeError(msg)

    def terminate(self, reason: Reason) -> Any:  # noqa: ANN401
        """Clean up; may be a coroutine."""

    def code_change(self, argument: Any) -> None:  # noqa: ANN401
        """Change the state of this actor, which is suspended, as `change_code` asks for.

        Whatever it raises goes to who asked; the attributes are then what they were. What they
        refer to is not copied: change no list or dict in place before all that can fail is done.
        """
        del argument
        msg = f"{type(self).__name__} has no code_change"
        raise TypeError(msg)

    def describe_role(self) -> str:
        """Say in a word or two what this actor is at present; shown by `poe.supervision.tree`.

        Called at any moment, even within another callback, so it must neither change nor send.
        """
        return ""

    def get_state(self) -> dict[str, Any]:
        """Return the attributes that are this actor's state, for inspection and tests."""
        return {name: value for name, value in vars(self).items() if name != "_myRef"}

    def set_state(self, state: dict[str, Any]) -> None:
        """Replace the attributes that `get_state` returns."""
        attributes = vars(self)
        for name in [name for name in attributes if name != "_myRef"]:
            del attributes[name]
        for name, value in state.items():
            setattr(self, name, value)
