"""Keys go where Java's producer would send them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.client.producer.murmur2 import murmur2, murmur2_of_all

# From Apache Kafka, UtilsTest.testMurmur2; numbers with a sign, as Java's.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), KNOWN.items())
def test_java_s_own_cases(key, expected):
    assert murmur2(key) == expected % 2**32


def test_java_s_own_cases_many_at_once():
    keys = [key for key in KNOWN for _ in range(20)]
    assert [*murmur2_of_all(keys)] == [KNOWN[key] % 2**32 for key in keys]


@given(keys=st.lists(st.binary(max_size=9) | st.binary(min_size=4, max_size=4), max_size=200))
def test_many_keys_are_hashed_as_one_by_one(keys):
    assert murmur2_of_all(keys).tolist() == [murmur2(key) for key in keys]


@pytest.mark.parametrize("size", [*range(10), 31, 1000])
def test_keys_of_one_length_are_hashed_as_one_by_one(size):
    keys = [bytes((7 * at + number) % 256 for at in range(size)) for number in range(50)]
    assert murmur2_of_all(keys).tolist() == [murmur2(key) for key in keys]


@pytest.mark.kafka
@given(key=st.binary())
def test_aiokafka_agrees(key):
    partitioner = pytest.importorskip("aiokafka.partitioner", reason="aiokafka is not installed")
    assert murmur2(key) == partitioner.murmur2(key)
