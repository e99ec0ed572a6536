"""Who is not let in yet is counted, in all and for each network; those that crowd give way."""

import itertools
import random

from poe.broker.access.strangers import Place, Strangers, network_of

CLOCK = itertools.count()
"""Who comes next comes a second later, and may take the place of all that were there before."""


def admitted(strangers: Strangers, address: str) -> tuple[Place, Place | None]:
    found = strangers.admit(address, next(CLOCK))
    assert found is not None
    return found


def placed(strangers: Strangers, address: str) -> Place:
    place, taken = admitted(strangers, address)
    assert taken is None
    return place


def test_where_all_places_are_taken_the_oldest_of_the_largest_crowd_gives_way():
    strangers = Strangers(4, 3)
    lonely = placed(strangers, "10.0.0.1")
    crowd = [placed(strangers, "10.0.0.2") for _ in range(3)]
    place, taken = admitted(strangers, "10.0.0.3")
    assert taken is crowd[0]
    assert taken.is_taken_away
    assert not lonely.is_taken_away
    assert not place.is_taken_away
    assert (strangers.count, strangers.taken_count) == (4, 1)


def test_who_leaves_makes_room():
    strangers = Strangers(3, 3)
    places = [placed(strangers, "10.0.0.1") for _ in range(3)]
    places[1].leave()
    placed(strangers, "10.0.0.2")
    assert strangers.count == 3


def test_one_address_does_not_take_the_places_of_others():
    strangers = Strangers(100, 2)
    first = placed(strangers, "10.0.0.1")
    placed(strangers, "10.0.0.1")
    assert admitted(strangers, "10.0.0.1")[1] is first
    placed(strangers, "10.0.0.2")


def test_who_waits_to_be_told_that_it_has_failed_gives_way_to_nobody_of_its_network():
    strangers = Strangers(3, 2)
    guesser, other = placed(strangers, "10.0.0.1"), placed(strangers, "10.0.0.1")
    guesser.is_kept = True
    another, taken = admitted(strangers, "10.0.0.1")
    assert taken is other
    another.is_kept = True
    assert strangers.admit("10.0.0.1", next(CLOCK)) is None
    assert strangers.count == 2
    placed(strangers, "10.0.0.2")
    # Else those of many networks would keep everybody out.
    assert admitted(strangers, "10.0.0.3")[1] is guesser


def test_who_has_only_just_come_gives_way_to_nobody():
    strangers = Strangers(3, 2)
    first = strangers.admit("10.0.0.1", 10.0)
    assert first is not None
    assert strangers.admit("10.0.0.1", 10.2) is not None
    assert strangers.admit("10.0.0.1", 10.4) is None
    assert strangers.admit("10.0.0.2", 10.4) is not None
    assert strangers.admit("10.0.0.3", 10.4) is None
    assert strangers.count == 3
    later = strangers.admit("10.0.0.1", 10.6)
    assert later is not None
    assert later[1] is first[0]


def test_a_place_is_taken_away_once():
    strangers = Strangers(1, 1)
    first = placed(strangers, "10.0.0.1")
    second, taken = admitted(strangers, "10.0.0.1")
    assert taken is first
    first.leave()
    assert strangers.count == 1
    second.leave()
    assert strangers.count == 0
    assert not second.is_taken_away


def test_a_machine_has_a_whole_network_of_ipv6():
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of("fe80::1%eth0") == network_of("fe80::2")


def test_an_ipv4_address_is_itself_however_it_is_written():
    assert network_of("::ffff:10.0.0.1") == network_of("10.0.0.1")
    assert network_of("::ffff:10.0.0.1") != network_of("::ffff:10.0.0.2")


def test_who_leaves_twice_counts_once():
    strangers = Strangers(2, 2)
    first, second = placed(strangers, "::1"), placed(strangers, "::1")
    first.leave()
    first.leave()
    assert strangers.count == 1
    second.leave()
    assert strangers.count == 0


def test_whatever_comes_and_goes_nothing_is_left():
    chance = random.Random(17)
    strangers = Strangers(20, 5)
    places: list[Place] = []
    for _ in range(2000):
        if places and chance.random() < 0.5:
            places.pop(chance.randrange(len(places))).leave()
        else:
            place, taken = admitted(strangers, f"10.0.0.{chance.randrange(8)}")
            places = [each for each in places if each is not taken] + [place]
        assert strangers.count == len(places) <= 20
    for place in places:
        place.leave()
    assert strangers.count == 0
    for _ in range(5):
        placed(strangers, "10.0.0.1")
