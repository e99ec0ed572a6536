"""Closes many segments at once: a sync or two of the whole disk do for thousands of topics.

That segments have ended is noted before their locks go: a start after a kill in between finds each
topic closed or left open, and looks into none.
"""

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, groupby

from poe.errors import StorageError
from poe.storage.formats.store_meta import StoreMeta
from poe.storage.formats.sum_file import SumState
from poe.storage.segment.segment import Segment
from poe.storage.shared_sync import SharedSync

_TOPICS_AT_ONCE = 10_000
"""So many end with a sync of theirs; the locks of those before go meanwhile."""

_log = logging.getLogger(__name__)


def close_together(
    shared: SharedSync, segments: Iterable[Segment], meta: StoreMeta, threads: int
) -> None:
    """Seal segments, make them durable and unlock them, those of a topic oldest first.

    The locks are removed in so many threads: each waits for the journal of the file system, and
    others' ends are written meanwhile.

    What that fails for stays as locked as it is: its own `close` tries again, and tells why not.
    """
    sealed = [segment for segment in segments if _seal(segment)]
    if len(sealed) < 2:  # noqa: PLR2004 - one alone does not wait for what others have written
        return
    if not shared.sync_all():
        return
    topics = [list(each) for _, each in groupby(sealed, _folder)]
    with ThreadPoolExecutor(threads) as pool:
        unlocking = []
        for first in range(0, len(topics), _TOPICS_AT_ONCE):
            ended = _end(shared, topics[first : first + _TOPICS_AT_ONCE], meta)
            shares = [ended[each::threads] for each in range(threads)]
            unlocking += [pool.submit(_unlock, share) for share in shares]
        for each in unlocking:
            each.result()  # a failure is raised here


def _end(shared: SharedSync, topics: list[list[Segment]], meta: StoreMeta) -> list[list[Segment]]:
    """Say durably that segments end here, and note it; return those of which that is done."""
    ended = [list(_write_ends(topic)) for topic in topics]
    # That a segment ends here may be on the disk only when all of it is, and noted behind that.
    if not shared.sync_all():
        return []
    with meta.together():
        return [
            [segment for segment, sums in topic if segment.durability.note_behind_sync(sums)]
            for topic in ended
        ]


def _write_ends(topic: list[Segment]) -> Iterator[tuple[Segment, SumState | None]]:
    """Write that segments end here; tell of those that took it, with their sums."""
    for segment in topic:
        try:
            yield segment, segment.durability.end_behind_sync()
        except StorageError as error:
            _log.info("segment %s is closed by itself: %s", segment.path, error)


def _folder(segment: Segment) -> str:
    return segment.path.rpartition("/")[0]


def _unlock(topics: list[list[Segment]]) -> None:
    """Unlock the segments of some topics, all of which is durable."""
    for segment in chain.from_iterable(topics):
        segment.durability.unlock()


def _seal(segment: Segment) -> bool:
    """Seal a segment; tell whether it can end once it is durable."""
    try:
        segment.seal()
    except StorageError as error:
        _log.info("segment %s is not sealed yet: %s", segment.path, error)
        return False
    return segment.durability.is_to_end
