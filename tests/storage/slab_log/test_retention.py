"""Retention removes the oldest slabs, whole, and never the newest."""

import math
import os

import pytest

from poe.errors import OptionError, ReadFailed, WriteFailed
from poe.storage import RealFiles
from poe.storage.slab_log import Reader, Writer, expire
from tests.storage.faulty_files import FaultyFiles
from tests.storage.slab_log.logs import messages, read_all, slab_of, slabs_in, sum_of, write_log


class FixedClock:
    def now_us(self):
        return 1_000_000_000_000


@pytest.fixture
def slabs(tmp_path):
    """A log of several slabs; the Nth was written N * 10 s ago, the newest 0 s ago."""
    write_log(tmp_path, [messages(60)], slab_size_hint=100)
    slabs = slabs_in(tmp_path)
    for age, slab in enumerate(reversed(slabs)):
        written_s = 1_000_000 - age * 10
        os.utime(slab_of(tmp_path, slab), (written_s, written_s))
    return slabs


def test_slabs_go_by_age(tmp_path, slabs):
    assert expire(tmp_path, age_max_s=25, clock=FixedClock()) == slabs[-3]
    assert slabs_in(tmp_path) == slabs[-3:]
    assert not sum_of(tmp_path, slabs[0]).exists()
    assert read_all(tmp_path)[-1] == messages(60)[-1]
    assert Reader(tmp_path).address == slabs[-3]


def test_slabs_go_by_bytes(tmp_path, slabs):
    end = slabs[-1] + slab_of(tmp_path, slabs[-1]).stat().st_size
    assert expire(tmp_path, bytes_max=end - slabs[2]) == slabs[2]
    assert expire(tmp_path, bytes_max=end - slabs[2] - 1) == slabs[3]
    assert slabs_in(tmp_path) == slabs[3:]


def test_slabs_go_that_hold_nothing_at_or_behind_an_address(tmp_path, slabs):
    assert expire(tmp_path, address_min=slabs[2]) == slabs[2]
    assert expire(tmp_path, address_min=slabs[3] - 1) == slabs[2]
    assert expire(tmp_path, address_min=slabs[-1] + 1000) == slabs[-1]
    assert slabs_in(tmp_path) == slabs[-1:]


def test_the_newest_slab_always_stays(tmp_path, slabs):
    assert expire(tmp_path, age_max_s=0, bytes_max=0, clock=FixedClock()) == slabs[-1]
    assert slabs_in(tmp_path) == slabs[-1:]


@pytest.mark.parametrize(
    "limit",
    [{"age_max_s": -1}, {"age_max_s": math.nan}, {"bytes_max": -1}, {"bytes_max": math.nan}],
)
def test_a_limit_that_is_none_is_refused_and_nothing_goes(tmp_path, slabs, limit):
    with pytest.raises(OptionError, match="use 0 or more, or None"):
        expire(tmp_path, **limit)
    assert slabs_in(tmp_path) == slabs


def test_without_limits_nothing_goes(tmp_path, slabs):
    assert expire(tmp_path) == 0
    assert expire(tmp_path, age_max_s=math.inf) == 0
    assert slabs_in(tmp_path) == slabs


def test_an_old_slab_behind_a_younger_one_stays(tmp_path, slabs):
    os.utime(slab_of(tmp_path, slabs[1]))
    assert expire(tmp_path, age_max_s=0, clock=FixedClock()) == slabs[1]


def test_the_clock_is_the_system_s_unless_another_is_given(tmp_path, slabs):
    assert expire(tmp_path, age_max_s=10) == slabs[-1]


def test_retention_works_beside_a_writer(tmp_path):
    with Writer(tmp_path, slab_size_hint=100) as writer:
        reader = Reader(tmp_path)
        found = []
        for each in messages(100):
            writer.write(each)
            writer.flush()
            found += list(reader)
            expire(tmp_path, bytes_max=0)
            assert len(slabs_in(tmp_path)) == 1
    assert found == messages(100)


def test_retention_that_is_interrupted_goes_on(tmp_path, slabs):
    layer = FaultyFiles(RealFiles.at(tmp_path))
    for nth in range(40):
        layer.fail(nth, 5)
        try:
            expire(layer, bytes_max=0)
        except (ReadFailed, WriteFailed):
            assert read_all(tmp_path)[-1] == messages(60)[-1]
    layer.heal()
    assert expire(layer, bytes_max=0) == slabs[-1]
    assert slabs_in(tmp_path) == slabs[-1:]
