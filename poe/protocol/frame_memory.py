"""What is received into: a scratch for whole frames, and memory for large ones that grow.

A scratch is lent to one reader at a time, from before it receives until it has handed out all whole
frames, or something has to be waited for. Usually there is a single one, however many readers.

The memory of large frames comes from the kernel, and goes back to it at once.
`malloc` keeps what is freed for the next one who asks, up to 64 MiB of it, and more where something
that lives longer lies between. What a peer has broken off has to go as soon as nobody refers to it,
so each frame lies in a mapping of its own.

Fresh pages cost as much as receiving into them. Frames of up to a mebibyte therefore lie in blocks,
of which a few are used again and again.
"""

import mmap
from collections import deque
from contextlib import suppress

SCRATCH_BYTES = 128 * 1024
_BLOCK_SIZE = (1 << 20) + (64 << 10)
"""A message of 1 MiB, with room for what is around it."""
_HUGE_SIZE = 4 << 20
"""From here on huge pages pay: receiving 30 MB took half the processor time."""


class FrameMemory:
    """What the readers of one thread receive into; not thread-safe.

    A scratch is given back to `scratches`. Of a large frame, who has a view has the memory: it is
    free when the last view of it is gone, however that happens, and nothing has to be given back.
    """

    __slots__ = ("_blocks", "_blocks_max", "scratch_bytes", "scratches")

    def __init__(
        self, *, blocks_max: int = 1, scratches_max: int = 1, scratch_bytes: int = SCRATCH_BYTES
    ) -> None:
        """Keep so many blocks at most for frames to come, and so many scratches."""
        self._blocks: list[mmap.mmap] = []
        self._blocks_max = blocks_max
        self.scratch_bytes = scratch_bytes
        self.scratches: deque[memoryview] = deque(maxlen=scratches_max)
        """Those that nobody has; more than so many are dropped by themselves."""

    def new_scratch(self) -> memoryview:
        """Return one more scratch, for who finds none in `scratches`."""
        return memoryview(bytearray(self.scratch_bytes))

    def take(self, size: int) -> memoryview:
        """Return memory of `size` bytes with whatever content."""
        if size > _BLOCK_SIZE:
            mapping = _map(size)
            _prefer_huge_pages(mapping)
        else:
            mapping = self._free_block()
        return memoryview(mapping)[:size]

    def extend(self, view: memoryview, size: int) -> memoryview:
        """Return memory of `size` bytes that begins with the content of `view`, which ends."""
        mapping = view.obj
        assert isinstance(mapping, mmap.mmap)
        if size > len(mapping) > _BLOCK_SIZE:
            view.release()
            with suppress(BufferError):  # somebody else looks into it
                # The kernel moves the pages; nothing is copied.
                mapping.resize(size)
                _prefer_huge_pages(mapping)
            view = memoryview(mapping)
        if size <= len(mapping):
            return memoryview(mapping)[:size]
        extended = self.take(size)
        extended[: len(view)] = view
        return extended

    def _free_block(self) -> mmap.mmap:
        for block in self._blocks:
            with suppress(BufferError):  # a view of it is left
                block.resize(_BLOCK_SIZE)
                return block
        block = _map(_BLOCK_SIZE)
        if len(self._blocks) < self._blocks_max:
            self._blocks.append(block)
        return block


def _map(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _prefer_huge_pages(mapping: mmap.mmap) -> None:
    if len(mapping) >= _HUGE_SIZE:
        with suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE)
