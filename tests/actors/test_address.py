"""Addresses: hashable, equal only to themselves, never reused."""

from thespian.actors import ActorAddress

from tests.actors.puppet import Puppet


def test_an_address_is_a_thespian_address_and_names_the_class(system):
    ref = system.start(Puppet)
    assert isinstance(ref, ActorAddress)
    assert str(ref).startswith("Puppet.")
    assert str(ref) == ref.actorAddressString


def test_addresses_are_equal_only_to_themselves_and_serve_as_keys(system):
    first, second = system.start(Puppet), system.start(Puppet)
    assert first == first  # noqa: PLR0124 - equality is the point
    assert first != second
    assert {first: 1, second: 2}[first] == 1


def test_an_address_is_never_reused(system):
    seen = set()
    for _ in range(100):
        ref = system.start(Puppet)
        seen.add(str(ref))
        system.stop(ref)
    assert len(seen) == 100
