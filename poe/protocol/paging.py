"""How a client is told of all topics page by page, so that no other client waits for it."""

from collections.abc import Collection
from typing import Final

PAGE_COUNT: Final = 500
"""Topics in a page."""


def end_of(page: Collection[bytes], after: bytes) -> bytes | None:
    """Tell behind which topic the next page begins; None when this was the last one.

    A server that knows no pages tells of all topics each time.
    """
    if len(page) != PAGE_COUNT:
        return None
    end = max(page)
    return end if end > after else None
