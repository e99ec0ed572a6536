"""Whatever is appended, put to sleep, sealed or crashed, a segment reads like a plain list."""

from bisect import bisect_right
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from poe.storage import POINTER_MAX, decode_records
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import NOW, create, files_at, reopen

BATCHES = st.one_of(
    st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=5),
    st.builds(lambda m, count: [m] * count, st.binary(min_size=1, max_size=9), st.integers(1, 80)),
)


class SegmentAgreement(RuleBasedStateMachine):
    folder: ClassVar[Path]

    @initialize(consumer_count=st.integers(0, 4))
    def begin(self, consumer_count):
        self.layer = FaultyFiles(files_at(Path(mkdtemp(dir=type(self).folder))))
        self.segment = create(self.layer)
        self.model = []
        self.now = NOW
        self.consumers = [0] * consumer_count

    @rule(messages=BATCHES, step=st.integers(-5, 50))
    def append(self, messages, step):
        self.now += step
        self.segment.unseal()
        first = max(self.now, (self.model[-1][0] + 1) if self.model else NOW)
        assert self.segment.append(messages, self.now) == first + len(messages) - 1
        self.model += [(first + i, m) for i, m in enumerate(messages)]

    @rule(steps=st.integers(1, 20), limit=st.integers(1, 30), bytes_max=st.integers(0, 2000))
    def consume(self, steps, limit, bytes_max):
        for number in range(len(self.consumers)):
            for _ in range(steps):
                pointer = self.consumers[number]
                assert self.segment.next(pointer) == self.next_in_model(pointer)
                found = self.segment.read(pointer, limit, bytes_max)
                self.consumers[number] = self.check(found, pointer, limit, bytes_max)

    @rule(back=st.integers(0, 400), limit=st.integers(1, 200), bytes_max=st.integers(0, 5000))
    def read_anywhere(self, back, limit, bytes_max):
        for pointer in (self.now - back, self.now + back, NOW + back, 0, POINTER_MAX):
            assert self.segment.next(pointer) == self.next_in_model(pointer)
            self.check(self.segment.read(pointer, limit, bytes_max), pointer, limit, bytes_max)

    @rule(action=st.sampled_from(["flush", "hibernate", "seal", "close", "sync"]))
    def live(self, action):
        getattr(self.segment, action)()

    @rule(is_rebooted=st.booleans())
    def crash_and_reopen(self, is_rebooted):
        if is_rebooted:
            # What has no sums yet would be cut off, see test_power_cut.py.
            self.segment.flush()
            self.layer.boot_id += "'"
        self.segment = reopen(self.layer)

    @invariant()
    def the_numbers_agree(self):
        model = self.model
        assert self.segment.count == len(model)
        assert self.segment.size_bytes == sum(11 + len(m) for _, m in model)
        assert self.segment.pointer_low == (model[0][0] if model else None)
        assert self.segment.pointer_high == (model[-1][0] if model else None)

    def next_in_model(self, pointer):
        at = bisect_right(self.model, pointer, key=lambda record: record[0])
        return self.model[at] if at < len(self.model) else None

    def check(self, found, pointer, limit, bytes_max):
        """Check a slice against the model; tell where its consumer goes on."""
        at = bisect_right(self.model, pointer, key=lambda record: record[0])
        expected = self.model[at : at + limit]
        while len(expected) > 1 and sum(11 + len(m) for _, m in expected) > bytes_max:
            expected.pop()
        if not expected:
            assert found is None
            return pointer
        assert decode_records(found.read()) == expected
        assert (found.record_count, found.last_pointer) == (len(expected), expected[-1][0])
        return found.last_pointer


@pytest.mark.slow
def test_a_segment_agrees_with_a_list(tmp_path):
    SegmentAgreement.folder = tmp_path
    case = SegmentAgreement.TestCase
    case.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
    case().runTest()
