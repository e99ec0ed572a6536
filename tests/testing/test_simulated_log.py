"""The simulated engine of the log: what it promises, and how it fails."""

import itertools
from random import Random
from typing import Any

import pytest

from poe.cluster.log.engine import Entries, Forgotten, Lost, NotStored, Stored
from poe.testing.simulated_log import CALM, Hazards, SimulatedLog


class Engines:
    """Engines of three nodes that step by dice; what each hears of a stream, and is told."""

    def __init__(self, seed=0, hazards=CALM):
        ticks = itertools.count(1_000_000, 1000)
        self.log = SimulatedLog(
            list("abc"), lambda: next(ticks), dice=Random(seed), hazards=hazards
        )
        self.heard: dict[str, list[Any]] = {name: [] for name in "abc"}
        self.told: list[object] = []
        self.engines = {name: self.log.engine(name) for name in "abc"}
        for name, engine in self.engines.items():
            engine.open(self.heard[name].append)
        self.engines["a"].make_stream("s", 3, 1 << 20, lambda _: None)
        self.run()
        for engine in self.engines.values():
            engine.follow("s", 0, 1)

    def run(self):
        while self.log.step():
            pass

    def publish(self, name, entry_id):
        self.engines[name].publish("s", entry_id, entry_id.encode(), 2.0, self.told.append)

    def events(self, name, kind):
        return [each for each in self.heard[name] if isinstance(each, kind)]

    def entries(self, name):
        """Entries as an owner takes them: those that it has already do not count."""
        taken: list[bytes] = []
        for event in self.events(name, Entries):
            for entry in event.entries:
                if len(taken) < entry.place:
                    assert entry.place == len(taken) + 1
                    taken.append(entry.payload)
        return taken


@pytest.mark.parametrize("seed", range(20))
def test_all_hear_the_same_in_order_whatever_comes_again(seed):
    hazards = Hazards(lose_ack=0.3, lose=0.2, late=0.2, again=0.5)
    engines = Engines(seed, hazards)
    for number in range(20):
        engines.publish("abc"[number % 3], f"id-{number}")
        engines.log.step()
        if number == 10:
            engines.log.lose_connection("b")
    engines.log.mend()
    engines.run()
    first = engines.entries("a")
    assert engines.entries("b") == engines.entries("c") == first
    assert len(set(first)) == len(first)
    assert len(engines.told) == 20
    stored = [each for each in engines.told if isinstance(each, Stored)]
    assert len({each.place for each in stored}) == len(stored)


def test_the_same_dice_do_the_same():
    def history(seed):
        engines = Engines(seed, Hazards(lose_ack=0.3, late=0.3, again=0.5))
        for number in range(10):
            engines.publish("ab"[number % 2], f"id-{number}")
            engines.log.step()
        engines.run()
        return engines.heard, engines.told

    assert history(3) == history(3)
    assert history(3) != history(4)


def test_what_is_published_in_an_election_is_refused_surely_or_in_doubt_and_maybe_stored_later():
    outcomes = set()
    for seed in range(40):
        engines = Engines(seed, Hazards(doubt=0.6))
        engines.log.begin_election()
        engines.publish("a", "x")
        engines.run()
        assert engines.entries("b") == []
        engines.log.end_election()
        engines.run()
        [told] = engines.told
        assert isinstance(told, NotStored)
        outcomes.add((told.is_sure, engines.entries("b") == [b"x"]))
    assert outcomes == {(True, False), (False, False), (False, True)}


def test_an_entry_that_is_published_again_is_stored_once():
    engines = Engines(0, Hazards(lose_ack=1.0))
    engines.publish("a", "x")
    engines.run()
    engines.log.hazards = CALM
    engines.publish("a", "x")
    engines.run()
    assert [type(each) for each in engines.told] == [NotStored, Stored]
    assert engines.entries("c") == [b"x"]


def test_a_server_that_stands_still_leaves_all_in_doubt_and_goes_on_where_it_was():
    engines = Engines()
    engines.log.pause("a")
    engines.publish("a", "x")
    engines.publish("b", "y")
    engines.run()
    assert sorted(map(str, map(type, engines.told))) == sorted(map(str, [NotStored, Stored]))
    assert engines.entries("a") == []
    engines.log.resume("a")
    engines.run()
    assert sorted(engines.entries("a")) == [b"x", b"y"]


def test_a_stream_that_has_forgotten_or_lost_an_entry_says_so():
    engines = Engines()
    engines.log.cut("c")
    for number in range(5):
        engines.publish("a", f"id-{number}")
    engines.run()
    engines.log.streams["s"].remove(3)
    engines.log.heal("c")
    engines.run()
    assert engines.entries("c") == [b"id-0", b"id-1"]
    assert engines.events("c", Forgotten) == [Forgotten("s", 1, 4)]
    engines.engines["c"].follow("s", 0, 2)
    engines.log.streams["s"].forget_to(5)
    engines.run()
    assert engines.events("c", Forgotten)[-1] == Forgotten("s", 2, 6)


def test_a_stream_that_somebody_has_deleted_or_made_anew_is_lost():
    engines = Engines()
    engines.publish("a", "x")
    engines.run()
    stream = engines.log.streams.pop("s")
    engines.log.spread("s")
    engines.run()
    assert [len(engines.events(name, Lost)) for name in "abc"] == [1, 1, 1]
    engines.log.streams["s"] = type(stream)(3, 1 << 20)
    engines.engines["a"].follow("s", 1, 2)
    engines.run()
    assert engines.events("a", Lost)[-1] == Lost("s", 2)
