"""Closes many segments at once: two syncs of the whole disk do for all what several do for each."""

import logging
from collections.abc import Iterable

from poe.errors import StorageError
from poe.storage.files import Files
from poe.storage.segment import Segment

_log = logging.getLogger(__name__)


def close_together(files: Files, segments: Iterable[Segment]) -> None:
    """Seal segments, make them durable and unlock them, those of a topic oldest first.

    What that fails for stays as locked as it is: its own `close` tries again, and tells why not.
    """
    sealed = [segment for segment in segments if _seal(segment)]
    if len(sealed) < 2:  # noqa: PLR2004 - one alone does not wait for what others have written
        return
    try:
        files.sync_all()
        # That a segment ends here may be on the disk only when all of it is.
        ended = [(segment, segment.end_behind_sync()) for segment in sealed]
        files.sync_all()
    except (OSError, StorageError) as error:
        _log.info("segments are closed one by one: %s", error)
        return
    for segment, sums in ended:
        segment.unlock_behind_sync(sums)


def _seal(segment: Segment) -> bool:
    """Seal a segment; tell whether it can end once it is durable."""
    try:
        segment.seal()
    except StorageError as error:
        _log.info("segment %s is not sealed yet: %s", segment.path, error)
        return False
    return segment.is_to_end
