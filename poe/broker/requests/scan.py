"""The control op `scan`: looks for messages where they lie, as far as one call may go.

A call reads `bytes_max` at most and ends after `_TIME_MAX_S`; whoever wants more asks again from
where it has looked up to. Strategy: a piece of the topic is found by the appendix server, and read
and looked through by a thread, so that others are served meanwhile; pieces are small, since that
thread holds the interpreter's lock.
"""

from itertools import islice
from typing import Any, Final, NamedTuple

from poe.broker.appendix.message import GetRange
from poe.broker.requests import arguments as arg
from poe.broker.requests.arguments import Arguments
from poe.broker.requests.matcher import PATTERN_MAX, Contains, Matcher, Matches
from poe.broker.requests.request_handler import RequestHandler
from poe.broker.requests.slices import read_records
from poe.errors import Overloaded, RemoteProtocolError, UnknownTopic
from poe.protocol import RANGE_COUNT_MAX
from poe.protocol.scan import Match
from poe.storage import POINTER_MAX
from poe.storage.files import IndexedSlice

BYTES_MAX: Final = 64 * 1024 * 1024
"""What one call may ask to look through."""
_BYTES_USUAL: Final = 16 * 1024 * 1024
MATCHES_MAX: Final = 1000
_MATCHES_USUAL: Final = 100
_PIECE_BYTES: Final = 512 * 1024
_PIECE_COUNT: Final = min(20_000, RANGE_COUNT_MAX)
_TIME_MAX_S: Final = 1.0


class _Looked(NamedTuple):
    """What a piece had."""

    matches: list[Match]
    last_pointer: int
    size_bytes: int


async def scan(handler: RequestHandler, arguments: Arguments) -> dict[str, Any]:
    """Return matches, and how far it was looked; `is_end`: there is nothing behind that.

    Raises:
        RemoteProtocolError: an argument is missing or wrong.
        UnknownTopic: nobody put anything onto it.
        InvalidPattern: the regular expression is none, or there is no RE2.
        StorageError: the topic cannot be read.
        Overloaded: there is no room for a message.
    """
    topic = arg.topic(arguments)
    pointer = _optional(arguments, "after", POINTER_MAX, 0)
    last = _optional(arguments, "last", POINTER_MAX, POINTER_MAX)
    bytes_left = max(_optional(arguments, "bytes_max", BYTES_MAX, _BYTES_USUAL), 1)
    matches_max = max(_optional(arguments, "matches_max", MATCHES_MAX, _MATCHES_USUAL), 1)
    matcher = _matcher(arguments)
    actor, matches, looked_bytes, is_end = handler.actor, list[Match](), 0, False
    await handler.recover(topic)
    if handler.routes.get(topic) is None and not handler.routes.check_partition(topic):
        raise UnknownTopic(topic)
    deadline_s = actor.monotonic_s() + _TIME_MAX_S
    while bytes_left > 0 and len(matches) < matches_max and actor.monotonic_s() <= deadline_s:
        wanted = GetRange(pointer, last, _PIECE_COUNT, min(_PIECE_BYTES, bytes_left))
        found = await handler.get_range(topic, wanted)
        if found is None:
            is_end = True
            break
        room, size_bytes = handler.room, found.records.length
        if size_bytes > _PIECE_BYTES and room is not None and not room.holding.may_hold(size_bytes):
            raise Overloaded("in_flight_max", room.holding.budget.bytes_max)
        left = matches_max - len(matches)
        looked = await actor.run_blocking(_look, topic, found, matcher, left)
        matches += looked.matches
        pointer = looked.last_pointer
        looked_bytes += looked.size_bytes
        bytes_left -= looked.size_bytes
    return {
        "matches": [list(each) for each in matches],
        "looked_up_to": pointer,
        "looked_bytes": looked_bytes,
        "is_end": is_end,
    }


def _look(topic: bytes, found: IndexedSlice, matcher: Matcher, matches_max: int) -> _Looked:
    """Read a piece and look through it, up to the last match that is wanted; in a thread."""
    records = read_records(topic, found)
    matches = list(islice(matcher.find(records), matches_max))
    if len(matches) < matches_max:
        return _Looked(matches, int(records.pointers[-1]), len(records.data))
    # What lies behind the last one was not told of: the next call looks there.
    number = matches[-1].ordinal - records.ordinal
    return _Looked(matches, matches[-1].pointer, int(records.starts[number + 1]))


def _matcher(arguments: Arguments) -> Matcher:
    contains, regex = arguments.get("contains"), arguments.get("regex")
    if isinstance(contains, str):
        contains = contains.encode()
    if (contains is None) == (regex is None):
        msg = "scan looks for one of contains and regex; send just one of them"
        raise RemoteProtocolError(msg)
    wanted = regex if contains is None else contains
    kind = str if contains is None else bytes
    if not isinstance(wanted, kind) or not 1 <= len(wanted) <= PATTERN_MAX:
        what = "text" if contains is None else "bytes"
        msg = f"scan looks for 1 to {PATTERN_MAX} of {what}, not for {wanted!r:.80}"
        raise RemoteProtocolError(msg)
    return Matches(str(regex)) if contains is None else Contains(contains)


def _optional(arguments: Arguments, name: str, maximum: int, default: int) -> int:
    return arg.whole(arguments, name, maximum) if arguments.get(name) is not None else default
