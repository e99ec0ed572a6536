"""The hash by which Java's producer spreads keys over partitions, for one key and for many.

Source: Apache Kafka, `org.apache.kafka.common.utils.Utils.murmur2`; Austin Appleby's MurmurHash2
with a seed of Kafka's.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF
_WORD = 4
_VECTOR_MIN = 16
"""Keys of one length from which numpy is faster than one key after the other."""


def murmur2(key: bytes) -> int:
    """Return the hash, as 32 bits without a sign."""
    end = len(key) & ~3
    hashed = _SEED ^ len(key)
    for start in range(0, end, _WORD):
        word = int.from_bytes(key[start : start + _WORD], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        hashed = (hashed * _FACTOR & _MASK) ^ word
    if end < len(key):
        hashed = (hashed ^ int.from_bytes(key[end:], "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15


def murmur2_of_all(keys: Sequence[bytes]) -> npt.NDArray[np.uint32]:
    """Return the hash of each key; keys of the same length are hashed at once."""
    hashes = np.empty(len(keys), np.uint32)
    by_length: defaultdict[int, list[int]] = defaultdict(list)
    for index, size in enumerate(map(len, keys)):
        by_length[size].append(index)
    for size, indexes in by_length.items():
        if len(indexes) < _VECTOR_MIN:
            hashes[indexes] = [murmur2(keys[index]) for index in indexes]
        else:
            joined = b"".join([keys[index] for index in indexes])
            rows = np.frombuffer(joined, np.uint8).reshape(len(indexes), size)
            hashes[indexes] = _hash_rows(rows)
    return hashes


def _hash_rows(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the hash of each row; as `murmur2`, with arrays that wrap around by themselves."""
    count, size = rows.shape
    factor = np.uint32(_FACTOR)
    padded = np.zeros((count, -(-size // _WORD) * _WORD), np.uint8)
    padded[:, :size] = rows
    words = padded.view("<u4").astype(np.uint32)
    hashes = np.full(count, _SEED ^ size, np.uint32)
    for column in range(size // _WORD):
        word = words[:, column] * factor
        word = (word ^ word >> np.uint32(24)) * factor
        hashes = (hashes * factor) ^ word
    if size % _WORD:
        hashes = (hashes ^ words[:, -1]) * factor
    hashes = (hashes ^ hashes >> np.uint32(13)) * factor
    return hashes ^ hashes >> np.uint32(15)
