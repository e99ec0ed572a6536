"""Turn what is stored into the partitions of a read; no files and no sockets here.

Strategy: whole segments are taken as they are listed. Only a segment that is cut, by a bound, a
limit or the size of a partition, is asked about again (`Span`), since its index alone can tell
where so many bytes end.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from poe.protocol import Span
from poe.storage import POINTER_MAX

NO_LIMIT = 2**32 - 1
"""Of records, or of bytes: the most that a request can name."""
_RANGE_COST_BYTES = 64 * 1024
"""What opening a segment costs beside its bytes: many tiny ones are not one partition."""


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """Messages of one segment: those with pointers from `first` to `last`."""

    topic: str
    segment: int
    """Timestamp of the segment."""

    first: int
    last: int
    """Pointer of a message, the last one of the range; less than `first` where there is none."""

    count: int
    bytes: int
    """Of whole records, as they lie on disk."""


Spanner = Callable[[SegmentRange, int, int], Span | None]
"""Tells what so many records and bytes at most of a range cover, though one record always; None
where nothing is left of the range."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a micro-batch may take in."""

    count: int = POINTER_MAX
    bytes: int = POINTER_MAX


def names_of(topics: Iterable[bytes]) -> list[str]:
    """Return the names of topics as text; those that are none are not for Spark."""
    names = []
    for topic in topics:
        with contextlib.suppress(UnicodeDecodeError):
            names.append(topic.decode())
    return names


def within(
    listed: Iterable[SegmentRange], after: int, last: int, span: Spanner
) -> list[SegmentRange]:
    """Return what of some segments lies behind the pointer `after`, up to `last`."""
    ranges = []
    for each in listed:
        if each.last <= after or each.first > last or not each.count:
            continue
        if each.first > after and each.last <= last:
            ranges.append(each)
        else:
            rest = replace(each, first=max(each.first, after + 1), last=min(each.last, last))
            # Mostly once and a look: a request cannot name more bytes than 4 GiB.
            while found := list(_first_of(rest, span, NO_LIMIT, NO_LIMIT)):
                ranges += found
                rest = replace(rest, first=found[0].last + 1)
                if rest.first > rest.last:
                    break
    return ranges


def partitions(
    ranges: Iterable[SegmentRange], span: Spanner, bytes_max: int, count_min: int = 1
) -> list[tuple[SegmentRange, ...]]:
    """Split and merge ranges, in order, to partitions of about equal size.

    Args:
        ranges: what is to be read.
        span: looks into a segment.
        bytes_max: of one partition, about.
        count_min: partitions to make of what has bytes enough for them.
    """
    ranges = list(ranges)
    total = sum(map(_cost, ranges))
    count = max(-(-total // bytes_max), count_min)
    share = max(-(-total // count), 2 * _RANGE_COST_BYTES)
    pieces: list[tuple[int, SegmentRange]] = []
    done = 0
    for each in ranges:
        for piece in _split(each, share, span):
            cost = _cost(piece)
            # A piece belongs where its middle lies; what splitting costs is for the last to bear.
            pieces.append((min((2 * done + cost) // (2 * share), count - 1), piece))
            done += cost
    return [
        tuple(piece for _, piece in group) for _, group in groupby(pieces, key=lambda each: each[0])
    ]


def admit(
    backlogs: Mapping[str, list[SegmentRange]], limits: Limits, span: Spanner
) -> dict[str, int]:
    """Return up to which pointer each topic may be read, so that all together keep the limits.

    Each topic gets a share like its part of what waits; the one whose messages wait longest comes
    first, so that none waits for ever. Where the bytes allow no message, one is admitted.

    Args:
        backlogs: what waits, exactly, oldest first, and not empty.
        limits: of all topics together.
        span: looks into a segment.
    """
    ends: dict[str, int] = {}
    count_left, bytes_left = limits.count, limits.bytes
    count_waiting = sum(each.count for backlog in backlogs.values() for each in backlog)
    bytes_waiting = sum(each.bytes for backlog in backlogs.values() for each in backlog)
    for topic, backlog in sorted(backlogs.items(), key=lambda item: item[1][0].first):
        count = sum(each.count for each in backlog)
        bytes_ = sum(each.bytes for each in backlog)
        share = Limits(
            min(count, -(-count_left * count // count_waiting)),
            min(bytes_, -(-bytes_left * bytes_ // bytes_waiting)),
        )
        count_waiting -= count
        bytes_waiting -= bytes_
        for taken in _first_ranges(backlog, share, span, is_one_needed=not ends):
            ends[topic] = taken.last
            count_left -= taken.count
            bytes_left = max(bytes_left - taken.bytes, 0)
    return ends


def _first_ranges(
    backlog: list[SegmentRange], share: Limits, span: Spanner, *, is_one_needed: bool
) -> Iterator[SegmentRange]:
    """Yield the first ranges of a topic that keep to its share, the last of them cut."""
    count_left, bytes_left = share.count, share.bytes
    for each in backlog:
        if each.count <= count_left and each.bytes <= bytes_left:
            yield each
            count_left -= each.count
            bytes_left -= each.bytes
            is_one_needed = False
            continue
        if count_left > 0:
            for taken in _first_of(each, span, count_left, max(bytes_left, 1)):
                if taken.bytes <= bytes_left or is_one_needed:
                    yield taken
        return


def _split(whole: SegmentRange, bytes_max: int, span: Spanner) -> Iterator[SegmentRange]:
    """Yield parts of a range of about equal size, none much larger than so many bytes."""
    rest = whole
    for left_count in range(-(-whole.bytes // bytes_max), 1, -1):
        found = list(_first_of(rest, span, NO_LIMIT, -(-rest.bytes // left_count)))
        if not found or found[0].last >= rest.last:
            break
        yield found[0]
        rest = replace(
            rest,
            first=found[0].last + 1,
            count=rest.count - found[0].count,
            bytes=rest.bytes - found[0].bytes,
        )
    yield rest


def _first_of(
    whole: SegmentRange, span: Spanner, count: int, bytes_max: int
) -> Iterator[SegmentRange]:
    """Yield the beginning of a range, or nothing where nothing is left of it."""
    found = span(whole, min(count, NO_LIMIT), min(bytes_max, NO_LIMIT))
    if found is not None:
        last, count, bytes_ = found
        yield replace(whole, last=last, count=count, bytes=bytes_)


def _cost(each: SegmentRange) -> int:
    return each.bytes + _RANGE_COST_BYTES
