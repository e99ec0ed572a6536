"""The budget of bytes in flight: who may receive, who waits, who goes on."""

import random
from functools import partial

import pytest

from poe.broker.requests.byte_budget import ByteBudget, Holding

KIB = 1024
BYTES_MAX = 1024 * KIB
HOLDERS_MAX = 8
SHARE = BYTES_MAX // 2 // HOLDERS_MAX


class Client:
    """Holds what a connection holds, and receives when it may."""

    def __init__(self, budget):
        self.budget = budget
        self.resumed = 0
        self.holding = Holding(budget, self.resume)

    def resume(self):
        self.resumed += 1

    def receive(self, size_bytes):
        """Receive as a connection does; tell how much it was."""
        if self.budget.is_full:
            if not self.holding.may_receive():
                return 0
            room_bytes = self.holding.room_bytes
            size_bytes = size_bytes if room_bytes is None else min(size_bytes, room_bytes)
        self.holding.set(self.holding.size_bytes + size_bytes)
        return size_bytes


@pytest.fixture
def budget():
    return ByteBudget(BYTES_MAX, HOLDERS_MAX)


@pytest.fixture
def clients(budget):
    return [Client(budget) for _ in range(HOLDERS_MAX)]


def test_nobody_waits_below_half_of_the_budget(budget, clients):
    assert clients[0].receive(300 * KIB) == 300 * KIB
    assert not budget.is_full
    assert clients[1].receive(212 * KIB) == 212 * KIB
    assert budget.is_full


def test_each_may_hold_its_share_however_full_it_is(budget, clients):
    hog, *others = clients
    hog.receive(BYTES_MAX)
    for client in others:
        assert client.receive(10 * SHARE) == SHARE
    assert budget.held_bytes <= BYTES_MAX + BYTES_MAX // 2


def test_one_goes_on_beyond_the_budget_and_the_next_when_it_is_done(clients):
    first, second, third, *_ = clients
    for client in (first, second, third):
        client.holding.set(600 * KIB)
    assert first.receive(KIB) == KIB
    assert second.receive(KIB) == third.receive(KIB) == 0
    assert first.receive(KIB) == KIB
    second.holding.set(700 * KIB)
    first.holding.set(0)
    assert (second.resumed, third.resumed) == (0, 1)
    assert third.receive(KIB) == KIB
    assert second.receive(KIB) == 0


def test_all_who_wait_are_resumed_when_there_is_room_those_that_hold_least_first(budget):
    order: list[int] = []
    going = Client(budget)
    going.holding.set(600 * KIB)
    assert going.receive(1)
    for size in (200 * KIB, 100 * KIB, 150 * KIB):
        holding = Holding(budget, partial(order.append, size))
        holding.set(size)
        assert not holding.may_receive()
    going.holding.set(0)
    assert order == [100 * KIB, 150 * KIB, 200 * KIB]
    assert not budget.has_line


def test_one_that_ends_while_it_goes_on_or_waits_holds_up_nobody(budget, clients):
    first, second, third, *_ = clients
    for client in (first, second, third):
        client.holding.set(600 * KIB)
        client.receive(KIB)
    second.holding.release()
    first.holding.release()
    assert second.resumed == 0
    assert third.resumed == 1
    third.holding.release()
    assert budget.held_bytes == 0
    assert not budget.is_full


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_there_is_a_bound_and_somebody_who_goes_on(budget, clients, seed):
    """Frames of random sizes in random pieces: all are finished, and memory stays bounded."""
    print("seed", seed)
    chance = random.Random(seed)
    frame_max = 400 * KIB
    left = {client: [chance.randint(1, frame_max) for _ in range(20)] for client in clients}
    while frames := {client: sizes for client, sizes in left.items() if sizes}:
        progress = 0
        for client in chance.sample(list(frames), len(frames)):
            sizes = frames[client]
            progress += client.receive(min(sizes[0], chance.randint(1, 64 * KIB)))
            if client.holding.size_bytes >= sizes[0]:
                sizes.pop(0)
                client.holding.set(0)
            assert budget.held_bytes == sum(each.holding.size_bytes for each in clients)
            assert budget.held_bytes <= BYTES_MAX + frame_max
        assert progress
    assert budget.held_bytes == 0
    assert not budget.has_line
