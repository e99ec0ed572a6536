"""Inflates the body of a request as it comes, a piece at a time, however much it would become."""

import zlib
from collections.abc import Iterator

_GZIP_FORMAT = 16 + zlib.MAX_WBITS
_PIECE_BYTES = 64 << 10
MEMBERS_MAX = 1000
"""Parts of one body: each costs the time of a small request, and may hold nothing."""

_OVERHEAD_SHIFT = 6
_OVERHEAD_BYTES = 1 << 10


def wire_max(body_max: int) -> int:
    """Return the bytes that a body may have in gzip: what cannot be compressed grows a little.

    They need a bound of their own, for parts of gzip may hold nothing.
    """
    return body_max + (body_max >> _OVERHEAD_SHIFT) + _OVERHEAD_BYTES


class GzipBody:
    """One body in gzip, of any number of members; each is checked against its checksum."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_FORMAT)
        self._member_count = 1

    def inflate(self, part: bytes) -> Iterator[bytes]:
        """Yield what a part becomes; whoever has enough asks for no more.

        Raises:
            zlib.error: it is no gzip, is damaged, or has more than `MEMBERS_MAX` members.
        """
        while part:
            if self._member.eof:
                if self._member_count == MEMBERS_MAX:
                    msg = f"more than {MEMBERS_MAX} members"
                    raise zlib.error(msg)
                self._member_count += 1
                self._member = zlib.decompressobj(_GZIP_FORMAT)
            yield self._member.decompress(part, _PIECE_BYTES)
            part = self._member.unused_data or self._member.unconsumed_tail

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing behind what has come."""
        return self._member.eof
