"""The hash of many messages at once is that of the xxhash package."""

import random

import numpy as np
import pytest
from xxhash import xxh32_intdigest

from poe.storage.slab_log.xxh32 import xxh32_of_rows


@pytest.mark.parametrize("length", [*range(70), 100, 255, 256, 1000])
def test_rows_hash_like_each_message_by_itself(length):
    data = np.frombuffer(random.Random(length).randbytes(17 * length), np.uint8)
    rows = data.reshape(17, length)
    assert xxh32_of_rows(rows).tolist() == [xxh32_intdigest(row.tobytes()) for row in rows]


def test_rows_may_lie_apart():
    records = np.frombuffer(random.Random(1).randbytes(50 * 28), np.uint8).reshape(50, 28)
    expected = [xxh32_intdigest(row.tobytes()) for row in records[:, 8:]]
    assert xxh32_of_rows(records[:, 8:]).tolist() == expected


def test_the_hash_is_that_of_the_original_s_test():
    row = np.frombuffer(b"This is only a test.", np.uint8).reshape(1, -1)
    assert xxh32_of_rows(row).tolist() == [0x8E217FE1]
