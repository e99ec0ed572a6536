"""Responder: a plain Thespian actor that gives each message an answer, on any system base."""

from typing import Any

from thespian.actors import Actor, ActorSystemMessage


class Responder(Actor):  # type: ignore[misc]  # Thespian is untyped
    """Override `answer`; what it raises would be tried a second time, as Thespian does."""

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: ANN401, N802
        """Answer whatever is not of Thespian's own making."""
        if not isinstance(message, ActorSystemMessage):
            self.send(sender, self.answer(message))

    def answer(self, message: Any) -> object:  # noqa: ANN401 - whatever a client sends
        """Return the answer, which Thespian pickles."""
        msg = f"{type(self).__name__} has no answer for {type(message).__name__}"
        raise TypeError(msg)
