"""Closed segments are re-read once a day, within a budget, without waking anybody."""

import logging

import pytest

from poe.errors import NoDescriptors
from poe.storage import Store
from tests.broker.nodes import open_files

TOPIC = b"t"
DAY = 24 * 3600


@pytest.fixture
def loud(monkeypatch):
    monkeypatch.setattr(logging.getLogger("poe.broker"), "filters", [])


def with_closed_segments(simulate, **options):
    # Rarely checked, so that a day passes quickly; twice the limit rotates at once.
    sim = simulate(count_limit=1, check_interval=600.0, **options)
    for number in range(5):
        sim.node.put_many(TOPIC, [b"%d" % number * 1000] * 2)
        sim.advance(0.1)
    sim.advance(5)
    return sim


def damage(sim, number, suffix):
    path = sorted((sim.folder / "topics/t").glob(f"*_{suffix}"))[number]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    return path


@pytest.mark.usefixtures("loud")
@pytest.mark.parametrize("suffix", ["data", "index", "sum"])
def test_damage_is_found_within_a_day_and_again_the_next(simulate, caplog, suffix):
    sim = with_closed_segments(simulate)
    sim.advance(70)
    path = damage(sim, 2, suffix)
    with caplog.at_level(logging.ERROR):
        sim.advance(DAY)
        assert str(path.relative_to(sim.folder)) in caplog.text
        scrub = sim.node.counters()["node"]["scrub"]
        assert (scrub["damaged"], scrub["left"]) == (1, 0)
        assert scrub["compared"] > 1
        assert scrub["ended_us"] > 0
        caplog.clear()
        sim.advance(DAY)
        assert str(path.relative_to(sim.folder)) in caplog.text


@pytest.mark.usefixtures("loud")
def test_damage_of_a_topic_that_nobody_has_put_onto_since_the_start_is_found(simulate, caplog):
    sim = simulate()
    sim.node.put(TOPIC, b"0")
    sim.node.put(b"used", b"0")
    sim.stop()
    path = damage(sim, 0, "data")
    sim.start()
    sim.node.put(b"used", b"1")
    with caplog.at_level(logging.ERROR):
        sim.advance(70)
    assert str(path.relative_to(sim.folder)) in caplog.text
    scrub = sim.node.counters()["node"]["scrub"]
    assert (scrub["compared"], scrub["damaged"]) == (1, 1), "what is written to is not compared"


@pytest.mark.usefixtures("loud")
def test_sound_segments_are_told_of_in_one_line_and_stay_asleep(simulate, caplog):
    sim = with_closed_segments(simulate)
    roles = sim.roles(TOPIC)
    with caplog.at_level(logging.INFO):
        sim.advance(70)
    assert caplog.text.count("all closed segments were compared, 0 damaged") == 1
    assert sim.roles(TOPIC) == roles
    assert open_files(sim.folder) == ["store.lock"]


@pytest.mark.usefixtures("loud")
def test_a_segment_that_finds_no_descriptor_is_compared_later_and_not_damaged(
    simulate, caplog, monkeypatch
):
    sim = with_closed_segments(simulate)
    scrub, failures = Store.scrub, [NoDescriptors("topics/t", "Too many open files")] * 3

    def scrub_with_few_descriptors(store, path):
        if failures:
            raise failures.pop()
        yield from scrub(store, path)

    monkeypatch.setattr(Store, "scrub", scrub_with_few_descriptors)
    damage(sim, 0, "data")
    with caplog.at_level(logging.INFO):
        sim.advance(70)
    assert not failures
    assert caplog.text.count("all closed segments were compared, 1 damaged") == 1


@pytest.mark.usefixtures("loud")
def test_a_small_budget_spreads_the_work(simulate, caplog):
    sim = with_closed_segments(simulate, scrub_rate=100)
    with caplog.at_level(logging.INFO):
        sim.advance(70)
        assert "were compared" not in caplog.text
        sim.advance(200)
        assert "were compared" in caplog.text


@pytest.mark.usefixtures("loud")
def test_a_rate_of_zero_turns_it_off(simulate, caplog):
    sim = with_closed_segments(simulate, scrub_rate=0)
    damage(sim, 2, "data")
    sim.advance(2 * DAY)
    assert "_data" not in caplog.text


@pytest.mark.slow
def test_a_segment_that_is_deleted_meanwhile_is_nobodys_loss(simulate):
    sim = with_closed_segments(simulate, max_age=100, scrub_rate=100)
    sim.advance(DAY)
    sim.kill("scrubber")
    assert sim.node.put(TOPIC, b"more")
