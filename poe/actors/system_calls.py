"""Requests of the runtime to one actor, as calls of application threads: OTP's `sys`.

The other end is the actor's `ServerCell`.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

from poe.actors.actor_cell import LoopAddress
from poe.actors.actor_status import ActorStatus
from poe.actors.message import SystemRequest


class SystemCalls:
    """What every actor system offers an application on top of its `call`."""

    __slots__ = ()

    @abstractmethod
    def call(self, ref: LoopAddress | str, request: object, timeout_s: float | None = 5.0) -> Any:  # noqa: ANN401 - a reply is whatever the server gives
        """Send a request and wait for the reply."""

    def suspend(self, ref: LoopAddress | str) -> None:
        """Make an actor keep its messages, in order, until `resume`; twice is harmless."""
        self.call(ref, SystemRequest("suspend"))

    def resume(self, ref: LoopAddress | str) -> None:
        """Let a suspended actor go on; twice is harmless."""
        self.call(ref, SystemRequest("resume"))

    def get_state(self, ref: LoopAddress | str) -> dict[str, Any]:
        """Return the attributes of an actor, suspended or not; for inspection and tests."""
        return self.call(ref, SystemRequest("get_state"))  # type: ignore[no-any-return]

    def replace_state(
        self, ref: LoopAddress | str, change: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """Replace the attributes of an actor by `change(attributes)`, and return the new ones.

        Whatever `change` raises is raised here; the attributes are then what they were. What they
        refer to is not copied: a `change` that may fail should make new lists and dicts.
        """
        return self.call(ref, SystemRequest("replace_state", change))  # type: ignore[no-any-return]

    def change_code(self, ref: LoopAddress | str, argument: object = None) -> None:
        """Run an actor's `code_change(argument)`; a supervisor reads its configuration again.

        Raises:
            NotSuspended: `suspend` it before, and `resume` it afterwards.

        Whatever `code_change` raises is raised here; the attributes are then what they were.
        """
        self.call(ref, SystemRequest("change_code", argument))

    def get_status(self, ref: LoopAddress | str) -> ActorStatus:
        """Return how an actor is, suspended or not: what it waits for, links, what it handled."""
        return self.call(ref, SystemRequest("get_status"))  # type: ignore[no-any-return]

    def inspect(self, ref: LoopAddress | str, log_max: int | None = 10) -> None:
        """Count what an actor handles from now on, and keep its last `log_max` messages' types.

        `get_status` tells both. None ends it; an actor that is not inspected pays nothing.
        """
        self.call(ref, SystemRequest("inspect", log_max))
