"""Turn messages of one size into their 32-bit xxHashes with seed 0, all at once.

Strategy: every step of the hash runs over one column of all messages. That costs about 8 ns a
message of 20 bytes, where the `xxhash` package costs 40, but it takes some thousand messages for
numpy's own cost per step to be shared by enough of them.

Source: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md, XXH32.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Hashes: TypeAlias = NDArray[np.uint32]

_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (
    np.uint32(prime) for prime in (2654435761, 2246822519, 3266489917, 668265263, 374761393)
)
_LANE_BYTES = 4
_STRIPE_LANES = 4
# What an accumulator begins with (prime 1 + prime 2, prime 2, 0, -prime 1, modulo 2^32), and how
# far it is rotated in the end.
_ACCUMULATORS = ((606290984, 1), (2246822519, 7), (0, 12), (1640531535, 18))


def xxh32_of_rows(rows: NDArray[np.uint8]) -> Hashes:
    """Hash each row of a matrix; rows may lie apart, the bytes of a row must not."""
    count, length = rows.shape
    lane_count = length // _LANE_BYTES
    striped_count = lane_count - lane_count % _STRIPE_LANES
    lanes = rows[:, : lane_count * _LANE_BYTES].view("<u4")
    # One scratch column for all steps: a fresh one for each would cost as much as the arithmetic.
    scratch = np.empty(count, np.uint32)
    if striped_count:
        hashes = np.zeros(count, np.uint32)
        state = np.empty(count, np.uint32)
        for number, (seed, bits) in enumerate(_ACCUMULATORS):
            state.fill(seed)
            for lane in range(number, striped_count, _STRIPE_LANES):
                state += np.multiply(lanes[:, lane], _PRIME_2, out=scratch)
                _rotate(state, 13, scratch)
                state *= _PRIME_1
            _rotate(state, bits, scratch)
            hashes += state
    else:
        hashes = np.full(count, _PRIME_5, np.uint32)
    hashes += np.uint32(length)
    for lane in range(striped_count, lane_count):
        hashes += np.multiply(lanes[:, lane], _PRIME_3, out=scratch)
        _rotate(hashes, 17, scratch)
        hashes *= _PRIME_4
    for at in range(lane_count * _LANE_BYTES, length):
        hashes += np.multiply(rows[:, at], _PRIME_5, out=scratch)
        _rotate(hashes, 11, scratch)
        hashes *= _PRIME_1
    for bits, prime in ((15, _PRIME_2), (13, _PRIME_3), (16, np.uint32(1))):
        hashes ^= np.right_shift(hashes, np.uint32(bits), out=scratch)
        hashes *= prime
    return hashes


def _rotate(numbers: Hashes, bits: int, scratch: Hashes) -> None:
    """Rotate each number to the left, in place."""
    np.left_shift(numbers, np.uint32(bits), out=scratch)
    np.right_shift(numbers, np.uint32(32 - bits), out=numbers)
    np.bitwise_or(numbers, scratch, out=numbers)
