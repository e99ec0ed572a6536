"""Closes many segments at once: two syncs of the whole disk do for all what several do for each.

That segments have ended is noted before the first lock goes: a start after a kill in between finds
each topic closed or left open, and looks into none.
"""

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, groupby

from poe.errors import StorageError
from poe.storage.formats.store_meta import StoreMeta
from poe.storage.formats.sum_file import SumState
from poe.storage.segment.segment import Segment
from poe.storage.shared_sync import SharedSync

_log = logging.getLogger(__name__)


def close_together(
    shared: SharedSync, segments: Iterable[Segment], meta: StoreMeta, threads: int
) -> None:
    """Seal segments, make them durable and unlock them, those of a topic oldest first.

    The locks are removed in so many threads: each waits for the journal of the file system.

    What that fails for stays as locked as it is: its own `close` tries again, and tells why not.
    """
    sealed = [segment for segment in segments if _seal(segment)]
    if len(sealed) < 2:  # noqa: PLR2004 - one alone does not wait for what others have written
        return
    if not shared.sync_all():
        return
    # That a segment ends here may be on the disk only when all of it is.
    ended = _end(sealed)
    if not shared.sync_all():
        return
    with meta.together():
        noted = [each for each, sums in ended if each.durability.note_behind_sync(sums)]
    topics = [list(each) for _, each in groupby(noted, _folder)]
    try:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(_unlock, [topics[first::threads] for first in range(threads)]):
                pass  # a failure is raised here
    except RuntimeError:  # no threads, as in a function of `atexit`
        _unlock(topics)


def _end(sealed: list[Segment]) -> list[tuple[Segment, SumState | None]]:
    """Write that segments end here; return those that took it, with their sums."""
    ended = []
    for segment in sealed:
        try:
            ended.append((segment, segment.durability.end_behind_sync()))
        except StorageError as error:
            _log.info("segment %s is closed by itself: %s", segment.path, error)
    return ended


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
