"""What the machines draw: topics, batches, places to read from, limits."""

from hypothesis import strategies as st

TOPICS = st.sampled_from([b"a", b"b.2", b"-c_"])

_ODD_SIZES = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=8)
_EQUAL_SIZES = st.builds(
    lambda message, count: [message] * count,
    st.binary(min_size=1, max_size=12),
    st.integers(1, 60),
)
_LARGE = st.builds(
    lambda byte, size, small: [small, bytes([byte]) * size, small],
    st.integers(0, 255),
    st.sampled_from([4_000, 70_000]),
    st.binary(min_size=1, max_size=3),
)
BATCHES = st.one_of(_ODD_SIZES, _EQUAL_SIZES, _LARGE)

LIMITS = st.sampled_from([1, 2, 10, 100, 1000])

PLACES = st.tuples(st.integers(0, 10_000), st.sampled_from([0, 0, 0, -1, 1]))
"""(number of a message, distance from it); `NodeModel.place` makes a pointer of it."""

PERIODS_S = st.sampled_from([0.1, 0.5, 0.6, 1.1, 2.5, 7.0, 35.0])
"""Below, at and above check_interval, worker_timeout and max_age of the machines."""
