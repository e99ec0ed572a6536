"""A group of a queue on one node: what it is to hand out, who holds it, and what is known of it.

It binds the leases of this node, whose units are streams, to what all nodes know together.
"""

from typing import Final

from xxhash import xxh3_128_digest, xxh64_intdigest

from poe.broker.groups.failures import NONE_YET
from poe.broker.groups.options import GroupDefinition, GroupOptions
from poe.broker.groups.ranges import Bounds, RangeSet
from poe.broker.groups.shared import Shared
from poe.broker.groups.state import GroupState
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.knowledge import Knowledge
from poe.cluster.queue_record import GroupRecord
from poe.cluster.ranges import minus
from poe.errors import OptionError

AT_MOST_ONCE: Final = "at-most-once"
DELIVERIES: Final = ("at-least-once", AT_MOST_ONCE)

_SKEW_BITS: Final = 20
"""Two nodes make a group in the same microsecond, and their leases have other numbers all the same:
generations begin up to a second ahead, by a hash of the node."""
_FIRST_GENERATION_US: Final = 1_767_225_600_000_000


def take_options(record: GroupRecord) -> tuple[GroupOptions, str]:
    """Return the options of a group, and how often each of its messages may be handed out.

    Raises:
        UnknownOption: there is no option of one of the names.
        OptionError: a value is not allowed.
    """
    options = dict(record.options)
    delivery = options.pop("delivery", DELIVERIES[0])
    if delivery not in DELIVERIES:
        raise OptionError("delivery", delivery, " or ".join(DELIVERIES))
    return GroupOptions.from_map(options), delivery


def define(record: GroupRecord) -> tuple[GroupDefinition, str]:
    """Return what a group is, and how often each of its messages may be handed out.

    Raises:
        InvalidGroupName: no group may be called so.
        UnknownOption, OptionError: as `take_options`.
    """
    options, delivery = take_options(record)
    identity = b"%b/%b/%d" % (record.queue, record.name.encode(), record.created_us)
    definition = GroupDefinition(
        name=record.name,
        id=xxh3_128_digest(identity),
        mode="shared",
        topics=(record.queue,),
        options=options,
        created_us=record.created_us,
    )
    return definition, delivery


class Ledger:
    """What one node has of one group.

    Always: what is owned and not done is known to `shared`.
    """

    def __init__(self, record: GroupRecord, me: NodeRef, knowledge: Knowledge, now_us: int) -> None:
        self.record = record
        self.me = me
        definition, self.delivery = define(record)
        self.options = definition.options
        skew = xxh64_intdigest(b"%b%d" % me) % (1 << _SKEW_BITS)
        generation = max(0, now_us - _FIRST_GENERATION_US) + skew
        self.state = GroupState.create(definition, now_us, generation)
        self.knowledge = knowledge
        self.owned: dict[StreamId, RangeSet] = {}
        """What this node is to hand out, done or not."""
        self._units: dict[StreamId, bytes] = {}
        self._streams: dict[bytes, StreamId] = {}

    @property
    def shared(self) -> Shared:
        """Return the leases."""
        return self.state.shared

    @property
    def is_once(self) -> bool:
        """Return whether what is handed out is done by that."""
        return self.delivery == AT_MOST_ONCE

    def unit(self, stream: StreamId) -> bytes:
        """Return the unit that a stream is in the group: of the queue, its origin and epoch."""
        unit = self._units.get(stream)
        if unit is None:
            origin = stream.origin.hex().encode()
            unit = b"%b@%b.%d" % (self.record.queue, origin, stream.epoch)
            self._units[stream], self._streams[unit] = unit, stream
        return unit

    def stream(self, unit: bytes) -> StreamId:
        """Return the stream that a unit is."""
        return self._streams[unit]

    def has_unit(self, unit: bytes) -> bool:
        """Return whether a unit is a stream of which something is known."""
        return unit in self._streams

    def own(self, stream: StreamId, after: int, last: int, now_us: int) -> None:
        """Have a range handed out by this node, as far as it is not done."""
        if self.is_once and stream != StreamId(*self.me):
            return  # nobody knows what that life of its origin has handed out and could not tell
        owned = self.owned.get(stream)
        if owned is None:
            owned = self.owned[stream] = RangeSet()
        owned.join(after, last)
        unit = self.unit(stream)
        for bounds in self.not_done(stream, after, last):
            self.shared.offer(unit, *bounds, NONE_YET, now_us)

    def disown(self, stream: StreamId, after: int, last: int) -> list[Bounds]:
        """Have a range handed out no more; return what of it was owned."""
        owned = self.owned.get(stream)
        return [] if owned is None else owned.cut(after, last)

    def not_owned(self, stream: StreamId, after: int, last: int) -> list[Bounds]:
        """Return what of a range this node does not own."""
        owned = self.owned.get(stream)
        return [(after, last)] if owned is None else owned.without(after, last)

    def not_done(self, stream: StreamId, after: int, last: int) -> list[Bounds]:
        """Return what of a range is not known to be done, nor as soon as that is written."""
        left = self.knowledge.get(stream).done.without(after, last)
        return minus(left, self.knowledge.about_to_be_done(stream))

    def take_changes(self) -> list[tuple[StreamId, int, int]]:
        """Know what the leases have brought to be done; return that."""
        done = []
        for change in self.state.take_changes():
            if change[0] == "done":
                stream, ends = self._streams[change[1]], change[2:]
                for after, last in zip(ends[::2], ends[1::2], strict=True):
                    done.append((stream, after, last))
                    if self.is_once:  # what is handed out is done when that is written
                        later = self.knowledge.about_to_be_done(stream)
                        for bounds in minus([(after, last)], later):
                            self.knowledge.finish(stream, *bounds)
                    else:
                        self.knowledge.finish(stream, after, last)
        return done

    def forget(self, stream: StreamId, now_us: int) -> None:
        """Drop all that is known of a stream."""
        self.knowledge.forget(stream)
        self.owned.pop(stream, None)
        unit = self._units.get(stream)
        if unit is not None:
            self.state.forget([unit], now_us)
            self.take_changes()
            del self._units[stream], self._streams[unit]
