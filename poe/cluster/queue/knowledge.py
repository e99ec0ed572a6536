"""What is known of a group and its messages: what is done, who was handed what, and what again.

All of it only grows, and is joined by union, range by range: in whatever order it is heard, and how
often, all nodes come to the same. What has grown at this node since it was last asked is its news.
Where nodes hand out in turns, each lease is a range of its own; so of what is done, and known to
all, it is let go who was handed it, but for the last ranges.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
from xxhash import xxh3_64_intdigest

from poe.broker.groups.ranges import Bounds, RangeSet
from poe.cluster.frames import Again, Known, flat_known
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.ranges import minus
from poe.errors import GroupFull

UNHEARD: Final = "unheard"
"""The cause of a range that `other` may have handed out and could tell nobody, since `node` has not
heard of it."""
UNDELIVERED: Final = "undelivered"
"""The cause of a range that a node has handed out, and then learned that it came to no client, as
far as can be known; `node` and `other` are both that node."""
NOBODY: Final = NodeRef(bytes(8), 0)
"""In place of a node of which is not known who it is."""
STREAMS_MAX: Final = 16_384
"""Of which something is known, or that a node holds; what is said of others is not taken."""
CAUSES_MAX: Final = 8_192
"""For which a stream was handed out, and the nodes that did so."""


GRANTED_MAX: Final = 25_000
"""Ranges of a stream of which it is kept by whom they were handed out; more are let go when there
are twice as many, so that it is seldom done."""


class Cause(NamedTuple):
    """Why messages were handed out again, or may have been."""

    cause: str
    node: NodeRef
    other: NodeRef


class StreamKnowledge:
    """What is known of one stream in a group."""

    __slots__ = ("_digest", "_nothing_old", "again", "done", "granted")

    def __init__(self) -> None:
        self._digest: int | None = 0
        """What `digest` has told since the last change; None: there was one since."""
        self._nothing_old: int | None = None
        """The digest with which nothing was to be taken out that is old."""
        self.done = RangeSet()
        self.granted: dict[NodeRef, RangeSet] = {}
        """What each node has handed to a client."""
        self.again: dict[Cause, tuple[int, RangeSet]] = {}
        """What was handed out again knowingly, and since when."""

    def finish(self, after: int, last: int) -> list[Bounds]:
        """Join what is done; return what of it was not known."""
        self._digest = None
        return self.done.join(after, last)

    def grant(self, node: NodeRef, after: int, last: int) -> list[Bounds]:
        """Join what a node has handed out; return what of it was not known."""
        self._digest = None
        granted = self.granted.get(node)
        if granted is None:
            granted = self.granted[node] = RangeSet()
        return granted.join(after, last)

    def note_again(self, cause: Cause, since_us: int, after: int, last: int) -> None:
        """Join what was handed out again; the first time is kept.

        Of a node that was not heard of the last time is, and what was so then.
        """
        self._digest = None
        known_us, ranges = self.again.get(cause, (since_us, RangeSet()))
        if cause.cause == UNHEARD and since_us != known_us:
            if since_us < known_us:
                return
            known_us, ranges = since_us, RangeSet()
        ranges.join(after, last)
        self.again[cause] = min(known_us, since_us), ranges

    def take_old(self) -> "StreamKnowledge | None":
        """Take out who was handed what is done, but for the last ranges; None: there are few."""
        if self._digest is not None and self._digest == self._nothing_old:
            return None
        named = [*self.granted.values(), *(ranges for _, ranges in self.again.values())]
        if sum(map(len, named)) <= 2 * GRANTED_MAX:
            return None
        until = sorted(last for ranges in named for _, last in ranges)[-GRANTED_MAX - 1]
        old = StreamKnowledge()
        for bounds in self.done.within(0, until):
            for node, ranges in self.granted.items():
                for part in ranges.cut(*bounds):
                    old.grant(node, *part)
            for cause, (since_us, ranges) in self.again.items():
                for part in ranges.cut(*bounds):
                    old.note_again(cause, since_us, *part)
        if not (old.granted or old.again):
            self._nothing_old = self._digest
            return None
        self.granted = {node: ranges for node, ranges in self.granted.items() if ranges}
        self.again = {cause: each for cause, each in self.again.items() if each[1]}
        self._digest = None
        return old

    def digest(self, group: str, stream: StreamId) -> int:
        """Return a hash of all of it, the same for what is the same; 0: nothing is known."""
        if self._digest is None:
            known = self.as_known(group, stream)
            is_any = known.done or known.granted or known.again
            self._digest = xxh3_64_intdigest(msgpack.packb(flat_known(known))) if is_any else 0
        return self._digest

    def as_known(self, group: str, stream: StreamId) -> Known:
        """Return all of it, the same for what is the same."""
        return Known(
            group,
            stream,
            tuple(self.done),
            tuple((node, tuple(ranges)) for node, ranges in sorted(self.granted.items())),
            tuple(
                Again(*cause, since_us, tuple(ranges))
                for cause, (since_us, ranges) in sorted(self.again.items(), key=_cause_of)
            ),
        )


class Knowledge:
    """What is known of all streams in one group.

    Always: what is news is a part of what is known; but for what is to be handed out when it is
    written, where the queue has a log.
    """

    __slots__ = (
        "_group", "_heard", "_is_logged", "_is_pause_news", "_me", "_news", "_streams", "_told",
        "_unwritten", "paused",
    )  # fmt: skip

    def __init__(self, group: str, me: NodeRef, *, is_logged: bool = False) -> None:
        self._group = group
        self._me = me
        self._is_logged = is_logged
        self._unwritten: dict[StreamId, StreamKnowledge] = {}
        """What is handed out when it is written, or done by that; it is only news by then, and not
        known: nobody is told, and nothing is dropped for it."""
        self._heard: dict[StreamId, RangeSet] = {}
        """What others say is done, and is not written."""
        self._told: dict[StreamId, StreamKnowledge] = {}
        """What others have told, and is to be written."""
        self._streams: dict[StreamId, StreamKnowledge] = {}
        self._news: dict[StreamId, StreamKnowledge] = {}
        self.paused = 0, False
        """Since when the group is paused, or is not any more; 0: it never was."""
        self._is_pause_news = False

    def streams(self) -> Iterable[StreamId]:
        """Return the streams of which something is known."""
        return self._streams.keys()

    def get(self, stream: StreamId) -> StreamKnowledge:
        """Return what is known of a stream; it is not to be changed."""
        return self._streams.get(stream, _NOTHING)

    def finish(self, stream: StreamId, after: int, last: int) -> None:
        """Count a range as done."""
        for bounds in _of(self._streams, stream).finish(after, last):
            _of(self._news, stream).finish(*bounds)

    def about_to_be_done(self, stream: StreamId) -> RangeSet:
        """Return what is done when it is written that it is handed out; it is not to be changed."""
        unwritten = self._unwritten.get(stream)
        return _NOTHING.done if unwritten is None else unwritten.done

    def grant(
        self, stream: StreamId, after: int, last: int, *, is_done: bool = False
    ) -> list[tuple[NodeRef, int, int]]:
        """Count a range as handed to a client by this node; or as done by that as well.

        Return what of it is known to have been handed out before, and by whom.
        """
        known = _of(self._streams, stream)
        before = [
            (other, *bounds)
            for other, granted in known.granted.items()
            for bounds in granted.within(after, last)
        ]
        if self._is_logged:
            unwritten = _of(self._unwritten, stream)
            granted = unwritten.granted.get(self._me, _NOTHING.done)
            before += [(self._me, *bounds) for bounds in granted.within(after, last)]
            for each in (unwritten, _of(self._news, stream)):
                each.grant(self._me, after, last)
                if is_done:
                    each.finish(after, last)
            return before
        if is_done:
            self.finish(stream, after, last)
        for bounds in known.grant(self._me, after, last):
            _of(self._news, stream).grant(self._me, *bounds)
        return before

    def note_again(
        self, stream: StreamId, why: tuple[str, NodeRef], now_us: int, after: int, last: int
    ) -> None:
        """Note that this node hands a range out again, for which cause and after whom.

        With the cause `UNHEARD`: that another one may have.
        """
        cause = Cause(why[0], self._me, why[1])
        for each in (_of(self._streams, stream), _of(self._news, stream)):
            each.note_again(cause, now_us, after, last)

    def note_told(self, stream: StreamId, node: NodeRef, after: int, last: int) -> None:
        """Have it written what of a range is done, and what a node has handed out that is gone.

        What others tell is not written at once; that one will tell it no later life of this one.
        """
        heard, granted = self._heard.get(stream), self.get(stream).granted.get(node)
        for bounds in heard.cut(after, last) if heard is not None else ():
            _of(self._told, stream).finish(*bounds)
        for bounds in granted.within(after, last) if granted is not None else ():
            _of(self._told, stream).grant(node, *bounds)

    def take_told(self) -> list[Known]:
        """Return what others have told and is to be written now."""
        told, self._told = self._told, {}
        return [each.as_known(self._group, stream) for stream, each in told.items()]

    def note_unwritten(self, told: Iterable[Known]) -> None:
        """Note that what others have told could not be written."""
        for each in told:
            self._hear(each.stream, each.done)

    def _hear(self, stream: StreamId, done: Iterable[Bounds]) -> None:
        """Note what others say is done, if it is to be written one day."""
        for bounds in done if self._is_logged and stream in self._streams else ():
            self._heard.setdefault(stream, RangeSet()).join(*bounds)

    def join(self, known: Known) -> list[Bounds]:
        """Join what another node knows of a stream; return what is done that was not.

        Raises:
            GroupFull: it is of more streams or nodes than there may be; nothing was taken.
        """
        mine = self._streams.get(known.stream)
        if mine is None:
            if len(self._streams) >= STREAMS_MAX:
                raise GroupFull(self._group, "streams", STREAMS_MAX)
            mine = StreamKnowledge()
        if len(mine.granted) + len(known.granted) + len(mine.again) + len(known.again) > CAUSES_MAX:
            nodes = mine.granted.keys() | {node for node, _ in known.granted}
            causes = mine.again.keys() | {Cause(*each[:3]) for each in known.again}
            if len(nodes) + len(causes) > CAUSES_MAX:
                raise GroupFull(self._group, "nodes and causes of a stream", CAUSES_MAX)
        self._streams[known.stream] = mine
        done = [part for bounds in known.done for part in mine.finish(*bounds)]
        self._hear(known.stream, done)
        for node, ranges in known.granted:
            for bounds in ranges:
                mine.grant(node, *bounds)
        for cause, node, other, since_us, ranges in known.again:
            for bounds in ranges:
                mine.note_again(Cause(cause, node, other), since_us, *bounds)
        return done

    def digest(self, stream: StreamId) -> int:
        """Return a hash of all that is known of a stream; 0: nothing."""
        return self.get(stream).digest(self._group, stream)

    def known(self, stream: StreamId) -> Known:
        """Return all that is known of a stream."""
        return self.get(stream).as_known(self._group, stream)

    def join_paused(self, since_us: int, *, is_paused: bool) -> bool:
        """Join whether the group is paused; return whether that is the latest word."""
        known_us, was_paused = self.paused
        # At one time its end wins, else none could follow one at the end of time.
        if (since_us, was_paused) <= (known_us, is_paused):
            return False
        self.paused, self._is_pause_news = (since_us, is_paused), True
        return True

    def take_pause_news(self) -> bool:
        """Return whether there was a word of a pause since the last time."""
        is_news, self._is_pause_news = self._is_pause_news, False
        return is_news

    @property
    def has_news(self) -> bool:
        """Whether something has grown here, or is to be written, since that was taken."""
        return bool(self._news or self._told) or self._is_pause_news

    def take_news(self) -> list[Known]:
        """Return what has grown here since the last time."""
        news, self._news = self._news, {}
        return [each.as_known(self._group, stream) for stream, each in news.items()]

    def unwritten(self, stream: StreamId) -> Known:
        """Return what is known of a stream when it is written, besides what is."""
        return self._unwritten.get(stream, _NOTHING).as_known(self._group, stream)

    def written(self, news: Known, *, is_failed: bool) -> tuple[Known, list[Bounds]]:
        """Note that news are written, so that what was to be handed out by them is; or failed.

        Return what is to be told of them, and what was to be done by that and is not.
        """
        stream, done = news.stream, []
        unwritten = self._unwritten.get(stream)
        if unwritten is not None:
            done = [part for bounds in news.done for part in unwritten.done.cut(*bounds)]
            mine = dict(news.granted).get(self._me, ())
            granted = unwritten.granted.get(self._me, RangeSet())
            for bounds in mine:
                granted.cut(*bounds)
            if not is_failed:
                known = _of(self._streams, stream)
                for bounds in mine:
                    known.grant(self._me, *bounds)
                for bounds in done:
                    known.finish(*bounds)
            if not (granted or unwritten.done):
                del self._unwritten[stream]
        if not is_failed:
            return news, []
        return news._replace(done=tuple(minus(news.done, done)), granted=()), done

    def begin_again(self) -> None:
        """Note a crash: what was to be handed out when it is written was not."""
        if self._is_logged:
            self._unwritten, self._news = {}, {}

    def take_old(self) -> list[tuple[StreamId, StreamKnowledge]]:
        """Take out, of streams of which much is known, who was handed what is done long since."""
        found = ((stream, known.take_old()) for stream, known in self._streams.items())
        return [(stream, old) for stream, old in found if old is not None]

    def forget(self, stream: StreamId) -> None:
        """Drop all that is known of a stream."""
        for each in (self._unwritten, self._heard, self._told, self._streams, self._news):
            each.pop(stream, None)


_NOTHING: Final = StreamKnowledge()


def _of(streams: dict[StreamId, StreamKnowledge], stream: StreamId) -> StreamKnowledge:
    found = streams.get(stream)
    if found is None:
        found = streams[stream] = StreamKnowledge()
    return found


def _cause_of(item: tuple[Cause, tuple[int, RangeSet]]) -> Cause:
    return item[0]
