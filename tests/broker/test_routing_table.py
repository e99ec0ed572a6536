"""A pointer leads to the first appendix server that has something newer, else to the writer."""

import pytest

from poe.actors import LoopSystem
from poe.broker import RoutingTable
from poe.testing import SimulatedClock
from tests.broker.nodes import FrameReads

TOPIC = b"t"


@pytest.fixture
def refs():
    system = LoopSystem(clock=SimulatedClock())
    yield [system.start(FrameReads, RoutingTable()) for _ in range(4)]
    system.shutdown()


@pytest.fixture
def routes(refs):
    table = RoutingTable()
    table.add(TOPIC, refs[0], None)
    table.add(TOPIC, refs[1], 100)
    table.add(TOPIC, refs[2], 200)
    return table


@pytest.mark.parametrize(
    ("pointer", "number"),
    [(0, 0), (99, 0), (100, 1), (101, 1), (199, 1), (200, 2), (201, 2), (2**56 - 1, 2)],
)
def test_a_pointer_leads_behind_the_last_bound_it_reaches(routes, refs, pointer, number):
    assert routes[TOPIC].reader(pointer) is refs[number]


def test_the_newest_is_the_writer(routes, refs):
    assert routes[TOPIC].writer is refs[2]
    assert len(routes[TOPIC].bounds) == len(routes[TOPIC].refs) - 1


def test_a_writer_without_a_bound_begins_anew(routes, refs):
    routes.add(TOPIC, refs[3], None)
    assert routes[TOPIC].refs == [refs[3]]
    assert routes[TOPIC].bounds == []


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_restarted_server_takes_the_place_of_the_dead_one(routes, refs, number):
    routes.replace(TOPIC, refs[number], refs[3], [100, 200, None][number])
    assert routes[TOPIC].refs[number] is refs[3]
    assert routes[TOPIC].bounds == [100, 200]
    assert refs[number] not in routes[TOPIC].refs


@pytest.mark.parametrize(("number", "bound", "bounds"), [(0, 40, [40, 200]), (1, None, [100, 100])])
def test_a_repaired_server_that_lost_records_lets_readers_pass(routes, refs, number, bound, bounds):
    routes.replace(TOPIC, refs[number], refs[3], bound)
    assert routes[TOPIC].bounds == bounds
    assert routes[TOPIC].reader(bounds[number]) is refs[number + 1]


@pytest.mark.parametrize(("number", "left", "bounds"), [(0, [1, 2], [200]), (1, [0, 2], [100])])
def test_a_reader_that_is_gone_leaves_its_pointers_to_the_next(routes, refs, number, left, bounds):
    routes.drop(TOPIC, refs[number])
    assert routes[TOPIC].refs == [refs[each] for each in left]
    assert routes[TOPIC].bounds == bounds
    assert routes[TOPIC].reader(number * 100) is refs[number + 1]


def test_a_route_that_somebody_holds_does_not_change(routes, refs):
    held = routes[TOPIC]
    routes.add(TOPIC, refs[3], 300)
    routes.drop(TOPIC, refs[0])
    assert held.refs == refs[:3]
    assert held.bounds == [100, 200]


def test_unknown_topics_have_no_route(routes):
    assert routes.get(b"other") is None
    assert routes.topics() == [TOPIC]
    routes.clear()
    assert routes.get(TOPIC) is None


def test_a_topic_that_is_about_to_have_a_route_is_told_of(routes):
    routes.waking.add(b"a")
    assert routes.topics() == [b"a", TOPIC]
    assert routes.page(b"", 5) == [b"a", TOPIC]
    assert routes.page(b"a", 5) == [TOPIC]
    assert routes.page(b"", 1) == [b"a"]
