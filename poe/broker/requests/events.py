"""The control op `events`: what has happened lately, and whoever waits for more.

The ring belongs to the node and outlives this actor; only who waits is kept here.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from poe.actors import NO_REPLY, Call, GenServer, Reason, Timer
from poe.broker.access.permission import Need, check
from poe.broker.appendix.message import ReleaseWaiting
from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.broker.requests.request_handler import WAIT_MAX_S, WAIT_SLICE_S, RequestHandler
from poe.errors import ActorDead
from poe.protocol.node_event import EVENTS_COUNT_MAX
from poe.supervision.event_ring import EventRing
from poe.topic_name import topic_text

EVENTS: Final = "events"
"""Name of the actor."""
_NEWS: Final = object()
_NEEDS: Final = (Need.of_node("admin"),)


class _Expired(NamedTuple):
    caller: Call


class Events(GenServer):
    """Has those wait who want to hear of the next event; a call is how many seconds at most.

    Answers whether there may be one. Many events that come at once wake them once.
    """

    def init(self, ring: EventRing) -> None:
        """Be told of each event from now on."""
        self._waiting: dict[Call, Timer] = {}
        self._is_told = False
        ring.when_added = self._added

    def handle_call(self, request: float, caller: Call) -> Any:  # noqa: ANN401 - the runtime's directive
        """Let one more wait."""
        self._waiting[caller] = self.send_after(request, _Expired(caller))
        return NO_REPLY

    def handle_info(self, message: Any) -> None:  # noqa: ANN401
        """Take the end of a wait."""
        if not isinstance(message, _Expired):
            super().handle_info(message)
        elif self._waiting.pop(message.caller, None) is not None:
            self.reply(message.caller, False)

    def handle_cast(self, message: object) -> None:
        """Wake all who wait: there is news, or the node is about to stop."""
        if message is _NEWS or isinstance(message, ReleaseWaiting):
            self._release()

    def terminate(self, reason: Reason) -> None:
        """Have nobody wait in vain."""
        del reason
        self._release()

    def _added(self) -> None:
        if self._waiting and not self._is_told:
            self._is_told = True
            self.cast(self.ref, _NEWS)

    def _release(self) -> None:
        self._is_told = False
        waiting, self._waiting = self._waiting, {}
        for caller, timer in waiting.items():
            timer.cancel()
            self.reply(caller, True)


async def events(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Return events behind `after`, and wait for one where none is there yet.

    Raises:
        RemoteProtocolError: an argument is wrong.
        NotAuthorized: nobody grants to administer the node any more.
    """
    after = arg.whole(arguments, "after", arg.U64_MAX) if "after" in arguments else 0
    limit = EVENTS_COUNT_MAX
    if "limit" in arguments:
        limit = min(arg.whole(arguments, "limit", arg.U32_MAX), limit)
    wait_s = arg.number(arguments, "wait_s", WAIT_MAX_S) if "wait_s" in arguments else 0.0
    ring = handler.routes.events
    deadline_s = handler.actor.monotonic_s() + wait_s
    # Who asks behind more than there is asks of the node as it was before it was started anew.
    while ring.newest_seq == after and handler.is_wanted:
        left_s = deadline_s - handler.actor.monotonic_s()
        if left_s <= 0:
            break
        try:
            slice_s = min(left_s, WAIT_SLICE_S)
            await handler.actor.call(EVENTS, slice_s, timeout_s=None)
        except ActorDead:  # it is being started again, or the node ends
            break
        check(handler.permissions, _NEEDS)  # a grant may have been taken back meanwhile
    oldest = ring.after(0, 1)
    return {
        "events": ring.after(after, limit),
        "newest_seq": ring.newest_seq,
        "oldest_seq": oldest[0]["seq"] if oldest else 0,
    }


def note_change(handler: RequestHandler, op: str, arguments: Mapping[str, Any]) -> None:
    """Tell the ring that somebody has changed what others may miss."""
    name = arguments.get("topic") or arguments.get("group") or arguments.get("name") or ""
    child = topic_text(name) if isinstance(name, bytes) else str(name)
    handler.routes.events.add(op, supervisor="control", child=child, who=handler.who())
