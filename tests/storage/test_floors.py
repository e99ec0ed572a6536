"""Floors of pointers: of those that are noted, the newest are known."""

from poe.storage.store.floors import FLOORS_MAX, Floors


def test_a_floor_is_never_lowered():
    floors = Floors()
    assert floors.of(b"t") == 0
    for pointer in (5, 7, 6, 0):
        floors.lift(b"t", pointer)
    assert floors.of(b"t") == 7


def test_of_too_many_topics_those_lifted_last_are_known():
    floors = Floors()
    for topic in ["first", "second", *range(FLOORS_MAX - 2), "first", "new"]:
        floors.lift(f"{topic}".encode(), 1)
    assert floors.of(b"second") == 0
    assert floors.of(b"first") == floors.of(b"new") == floors.of(b"0") == 1
