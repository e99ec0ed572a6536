"""Read by ranges or record by record: the same records, whatever their sizes and segments."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poe import Node, protocol
from poe.storage import POINTER_MAX
from properties.models import NodeModel
from properties.strategies import BATCHES, PLACES
from tests.broker.nodes import connect, read_by_frames
from tests.protocol.streams import records_of

BOUNDS = st.tuples(st.sampled_from([0, 1, 3, 100, 2**32 - 1]), st.sampled_from([0, 30, 500, 10**6]))
"""Records and bytes at most."""

_topics = (b"t%d" % number for number in itertools.count())


@pytest.fixture(scope="module")
def socket(tmp_path_factory) -> Iterator[protocol.Socket]:
    """A node whose segments hold five messages, or a batch; half of its batches have one alone."""
    folder = tmp_path_factory.mktemp("ranges")
    with (
        Node(dir=folder, port=0, count_limit=5, check_interval=0.005, worker_timeout=0.01) as node,
        connect(node) as socket,
    ):
        yield socket


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    batches=st.lists(BATCHES, max_size=12),
    ranges=st.lists(st.tuples(PLACES, PLACES, BOUNDS), min_size=1, max_size=5),
)
def test_ranges_hold_what_reads_do(socket, batches, ranges):
    topic = next(_topics)
    model = NodeModel()
    for messages in batches:
        model.put(topic, messages, socket.write(topic, messages))
    stored = model.topics.get(topic, [])
    assert read_by_frames(socket.read, topic) == stored
    for first, final, (limit, bytes_max) in ranges:
        pointer, last = model.place(topic, *first), model.place(topic, *final)
        for end in (last, POINTER_MAX):
            expected = [record for record in stored if pointer < record[0] <= end]
            found = list(socket.read_ranges(topic, pointer, end, limit, bytes_max))
            records = list(itertools.chain.from_iterable(map(records_of, found)))
            assert records == (expected if limit else [])
            for each in found:
                assert len(each) <= limit
                assert len(each) == 1 or len(each.data) <= bytes_max
            span = socket.span(topic, pointer, end, limit, bytes_max)
            if found:
                assert span == (found[0].pointers[-1], len(found[0]), len(found[0].data))
            else:
                assert span is None
    if stored:
        socket.delete(topic)
