"""A topic's actor and its workers in simulated time, on brokers that do as they are told."""

import heapq
import itertools
import threading
from collections.abc import Callable
from functools import partial

import pytest

from poe.actors import LoopSystem
from poe.client.producer.accumulator import Accumulator
from poe.client.producer.delivery import Buffered, Failed
from poe.client.producer.instrumentation import Instrumentation
from poe.client.producer.payload import Message
from poe.client.producer.producer_core import ProducerSup
from poe.client.producer.producer_options import ProducerOptions
from poe.client.producer.topic_producer import ProducerParts
from poe.client.producer.topic_queues import TopicQueues, buffered_of
from poe.client.producer.transport import Broker, Partition, TopicMetadata
from poe.errors import (
    BrokerDown,
    ConnectFailed,
    DeliveryTimeout,
    Dropped,
    InvalidTopicName,
    PickerFailed,
    ProducerClosed,
)
from poe.testing import SimulatedClock
from tests.client.simulated import MemorySink, SimulatedLink, StoringServer
from tests.interrupts import places

TOPIC = b"t"


@pytest.fixture(autouse=True)
def _no_actor_has_crashed(request, caplog):
    """A restart hides a crash: only the tests of crashes may have any."""
    yield
    assert "crashed" not in caplog.text or "crash" in request.node.name


class Brokers:
    """A transport whose brokers are there, or not."""

    numbers_puts = True
    times_out_requests = False
    takes_empty = False

    def __init__(self, leaders=(0,)):
        self.leaders = list(leaders)
        """Broker of each partition."""
        self.down: set[int] = set()
        self.error = None
        """What asking for metadata raises."""
        self.asked_count = 0
        self.server = StoringServer()
        self.links: list[tuple[int, SimulatedLink, object]] = []
        self.connects_s: list[float] = []
        self.clock = SimulatedClock()

    async def metadata(self, topic):
        self.asked_count += 1
        if self.error is not None:
            raise self.error
        brokers = tuple(Broker(i, "host", i) for i in range(3))
        partitions = tuple(Partition(i, leader) for i, leader in enumerate(self.leaders))
        return TopicMetadata(topic, brokers, partitions)

    async def connect(self, topic, broker, on_lost):
        self.connects_s.append(round(self.clock.monotonic_s(), 3))
        if broker.id in self.down:
            raise ConnectFailed("host", broker.id, "refused")
        link = SimulatedLink(self.server)
        self.links.append((broker.id, link, on_lost))
        return link

    def close(self):
        """Nothing is there to be closed."""

    def open_links(self):
        return [broker for broker, link, _ in self.links if not link.is_closed]

    def run(self):
        for _, link, _ in self.links:
            if not link.is_closed:
                link.run()

    def lose(self, number=-1):
        self.links[number][2]("unplugged")


class World:
    """A producer's tree for one topic."""

    def __init__(self, brokers=None, **options):
        self.brokers = brokers or Brokers()
        self.system = LoopSystem(clock=self.brokers.clock)
        loaded = ProducerOptions.load(options)
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self.accumulator = Accumulator(self, loaded.buffer_count, loaded.buffer_bytes)
        self.observer = observer = Instrumentation(loaded, self.accumulator, takes_empty=False)
        self.topic = TopicQueues(
            TOPIC, loaded.of(TOPIC), self.accumulator, observer, is_numbered=True
        )
        parts = ProducerParts(self.brokers, loaded, observer)
        tree = self.system.start(ProducerSup, parts, lambda: [self.topic])
        assert tree is not None
        self.tree = tree
        self.system.cast("topic_starter", self.topic)

    def now_s(self):
        return self.system.run_queue.monotonic_s()

    def call_later(self, delay_s, action):
        heapq.heappush(self._due, (self.now_s() + delay_s, next(self._order), action))

    def add(self, *messages):
        return self.topic.add(list(messages), is_due=True)

    def advance(self, seconds):
        end_s = self.now_s() + seconds
        while self._due and self._due[0][0] <= end_s:
            due_s, _, action = heapq.heappop(self._due)
            self.system.advance(max(due_s - self.now_s(), 0.0))
            action()  # not by an actor, as in the loop
        self.system.advance(end_s - self.now_s())

    def partitions(self):
        return sorted(worker.info(TOPIC).partitions for worker in self.topic.workers)


def test_a_lost_connection_is_replaced_at_once_and_then_after_longer_and_longer_waits():
    world = World(reconnect_min_s=1.0, reconnect_max_s=4.0)
    brokers = world.brokers
    begun_s = brokers.clock.monotonic_s()
    assert world.topic.state == "ready"
    brokers.down = {0}
    brokers.lose()
    world.advance(20.0)
    assert world.topic.state == "downtime"
    assert [each_s - begun_s for each_s in brokers.connects_s] == [0, 0, 1, 3, 7, 11, 15, 19]
    delivery = world.add(b"a")
    brokers.down = set()
    world.advance(4.0)
    brokers.run()
    assert world.topic.state == "ready"
    assert delivery.result(0).pointer == 1


def test_a_server_that_takes_connections_and_serves_nobody_is_asked_less_and_less_often(caplog):
    down = []
    events = {"time_down": lambda *told: down.append(told[-1])}
    world = World(reconnect_min_s=1.0, reconnect_max_s=4.0, callbacks=events)
    brokers = world.brokers
    begun_s = brokers.clock.monotonic_s()
    while brokers.clock.monotonic_s() < begun_s + 20.0:
        if brokers.open_links():
            brokers.lose()
        world.advance(0.5)
    assert [each_s - begun_s for each_s in brokers.connects_s] == [
        0,
        0,
        1.5,
        3.5,
        7.5,
        11.5,
        15.5,
        19.5,
    ]
    assert str(world.topic.last_error) == "the connection to host:0 is lost (unplugged)"
    assert len(caplog.records) == 1
    world.advance(8.5)
    assert world.topic.last_error is None
    assert down == [int(23.5e6)]
    brokers.lose()
    world.advance(0.0)
    assert brokers.open_links() == [0]


def test_an_answer_ends_a_downtime():
    world = World(reconnect_min_s=1.0)
    for _ in range(3):
        world.brokers.lose()
        world.advance(2.0)
    delivery = world.add(b"a")
    assert world.topic.last_error is not None
    world.brokers.run()
    world.advance(1.0)
    assert delivery.done()
    assert world.topic.last_error is None


def test_calls_wait_for_partitions_that_nobody_tells_yet():
    brokers = Brokers()
    brokers.error = BrokerDown(TOPIC, "nobody answers")
    world = World(brokers)
    deliveries = [world.add(b"a"), world.add(b"b", b"c")]
    assert world.topic.info().buffered_count == 3
    brokers.error = None
    world.advance(1.0)
    brokers.run()
    assert brokers.server.log == [b"a", b"b", b"c"]
    assert [each.result(0).pointer for each in deliveries] == [1, 3]
    assert world.accumulator.count == world.accumulator.size == 0


@pytest.mark.parametrize("are_partitions_known", [False, True])
def test_a_fork_fails_the_copies_of_calls_that_waited_for_partitions(are_partitions_known):
    brokers = Brokers(leaders=(0, 1))
    brokers.error = BrokerDown(TOPIC, "nobody answers")
    world = World(brokers)
    deliveries = [
        world.add(b"a"),
        world.add(Message(b"b", b"key 1"), Message(b"c", b"key 2"), Message(b"d", b"key 3")),
    ]
    if are_partitions_known:
        brokers.error = None
        world.advance(1.0)
        assert brokers.links
    world.topic.forget(ProducerClosed())
    assert all(isinstance(each.exception(0), ProducerClosed) for each in deliveries)


def test_a_call_with_keys_that_waits_for_partitions_has_a_list_of_where_it_waits():
    brokers = Brokers(leaders=(0, 1))
    brokers.error = BrokerDown(TOPIC, "nobody answers")
    world = World(brokers)
    plain = world.add(b"a", b"b")
    keyed = world.add(Message(b"c", b"key 1"), Message(b"d"))
    assert buffered_of(plain) == Buffered(-1, 2)
    assert buffered_of(keyed) == [Buffered(-1, 2)]
    brokers.error = None
    world.advance(1.0)
    brokers.run()
    assert plain.result(0).count == 2
    assert [each.count for each in keyed.result(0)] == [1, 1]


def test_a_call_that_waited_for_partitions_is_withdrawn_from_where_it_went():
    brokers = Brokers(leaders=(None, None))
    brokers.error = BrokerDown(TOPIC, "nobody answers")
    world = World(brokers, strategy="custom")
    doomed = world.add(*(Message(b"%d" % i, b"%d" % i) for i in range(9)))
    kept = world.add(b"kept")
    brokers.error = None
    world.advance(1.0)
    assert not doomed.done()
    assert world.topic.withdraw(doomed, ProducerClosed())
    assert isinstance(doomed.exception(0), ProducerClosed)
    assert world.accumulator.count == 1
    assert not kept.done()


def test_of_a_list_with_keys_each_message_that_was_not_dropped_has_its_result():
    world = World(downtime_count=2)
    world.brokers.down = {0}
    world.brokers.lose()
    world.advance(1.0)
    delivery = world.add(*(Message(b"%d" % i, b"key") for i in range(4)))
    world.brokers.down = set()
    world.advance(10.0)
    world.brokers.run()
    first, second, *others = delivery.result(0)
    assert {type(first.error), type(second.error)} == {Dropped}
    assert [each.pointer for each in others] == [1, 2]


def test_calls_do_not_overtake_those_that_wait_for_partitions():
    threads: list[threading.Thread] = []

    def picker(_topic, _key, _partitions):
        if not threads:  # asked for the call that waited: another one comes meanwhile
            threads.append(threading.Thread(target=world.add, args=[b"later"]))
            threads[0].start()
            threads[0].join(0.05)
        return 0

    brokers = Brokers()
    brokers.error = BrokerDown(TOPIC, "nobody answers")
    world = World(brokers, picker=picker)
    world.add(b"earlier")
    brokers.error = None
    world.advance(1.0)
    threads[0].join()
    brokers.run()
    assert brokers.server.log == [b"earlier", b"later"]


def test_a_topic_that_is_refused_for_good_fails_the_calls_that_wait():
    brokers = Brokers()
    brokers.error = BrokerDown(TOPIC, "nobody answers")
    world = World(brokers)
    delivery = world.add(b"a")
    brokers.error = InvalidTopicName(TOPIC)
    world.advance(1.0)
    with pytest.raises(InvalidTopicName):
        delivery.result(0)
    assert world.accumulator.count == 0


@pytest.mark.parametrize(
    ("side", "kept"), [("oldest", [b"c", b"d", b"e"]), ("newest", [b"a", b"b", b"c"])]
)
def test_a_downtime_keeps_only_so_many_messages_before_partitions_are_known_too(side, kept):
    brokers = Brokers()
    brokers.error = BrokerDown(TOPIC, "nobody answers")
    world = World(brokers, downtime_count=3, downtime_drop=side)
    assert world.topic.state == "downtime"
    messages = [b"a", b"b", b"c", b"d", b"e"]
    deliveries = {message: world.add(message) for message in messages}
    assert [each for each in messages if not deliveries[each].done()] == kept
    assert world.accumulator.count == 3
    assert world.observer.totals["messages_dropped"] == 2
    brokers.error = None
    world.advance(1.0)
    brokers.run()
    assert brokers.server.log == kept
    for message in set(messages) - set(kept):
        assert isinstance(deliveries[message].exception(0), Dropped)


@pytest.mark.parametrize("side", ["oldest", "newest"])
@pytest.mark.parametrize("is_known", [False, True], ids=["new topic", "known partitions"])
def test_a_downtime_for_which_none_is_to_be_kept_keeps_none(side, is_known):
    brokers = Brokers()
    brokers.error = None if is_known else BrokerDown(TOPIC, "nobody answers")
    world = World(brokers, downtime_count=0, downtime_drop=side)
    if is_known:
        brokers.down = {0}
        brokers.lose()
        world.advance(1.0)
    assert world.topic.state == "downtime"
    deliveries = [world.add(b"%d" % i) for i in range(3)]
    assert [each.done() for each in deliveries] == [True] * 3
    assert {type(each.exception(0)) for each in deliveries} == {Dropped}
    assert world.accumulator.count == 0


@pytest.mark.parametrize(
    ("side", "kept"), [("oldest", [b"d", b"e", b"f"]), ("newest", [b"a", b"b", b"c"])]
)
def test_a_downtime_drops_the_oldest_or_newest_of_a_topic_whichever_partition_has_it(side, kept):
    world = World(
        Brokers(leaders=(0, 0)),
        strategy="strict_round_robin",
        downtime_count=3,
        downtime_drop=side,
    )
    world.brokers.down = {0}
    world.brokers.lose()
    world.advance(1.0)
    assert world.topic.state == "downtime"
    deliveries = {message: world.add(message) for message in [b"a", b"b", b"c", b"d", b"e", b"f"]}
    assert world.accumulator.count == 3
    world.brokers.down = set()
    world.advance(10.0)
    world.brokers.run()
    assert sorted(world.brokers.server.log) == kept
    for message, delivery in deliveries.items():
        assert isinstance(delivery.exception(0), Dropped) == (message not in kept)


def test_messages_that_the_picker_refuses_are_told_counted_and_called_back():
    def picker(_topic, key, _partitions):
        return 7 if key == b"bad" else 0

    failed = []
    world = World(picker=picker, callbacks={"failed": lambda *told: failed.append(told)})
    buffered = buffered_of(
        world.add(Message(b"a", b"good"), Message(b"b", b"bad"), Message(b"c", b"good"))
    )
    assert isinstance(buffered, list)
    assert buffered[0] == Buffered(0, 2)
    assert isinstance(buffered[1], Failed)
    assert isinstance(buffered[1].error, PickerFailed)
    with pytest.raises(PickerFailed):
        buffered_of(world.add(Message(b"d", b"bad")))
    assert world.observer.totals["messages_failed"] == 2
    assert [(told[0], told[1], type(told[-1])) for told in failed] == [
        ("failed", world.topic, PickerFailed)
    ] * 2
    world.brokers.run()
    assert world.accumulator.count == 0


def test_calls_without_partitions_are_given_up_in_the_end():
    brokers = Brokers()
    brokers.error = BrokerDown(TOPIC, "nobody answers")
    failed = []
    failures = {"failed": lambda *told: failed.append(told[-1])}
    world = World(brokers, delivery_timeout_s=10.0, callbacks=failures)
    old = world.add(b"a")
    world.advance(8.0)
    young = world.add(b"b")
    world.advance(4.0)
    with pytest.raises(DeliveryTimeout, match="nobody answers"):
        old.result(0)
    assert failed == [old.exception(0)]
    assert world.observer.totals["messages_failed"] == 1
    assert not young.done()


def test_each_leader_has_a_worker_and_one_whose_broker_leads_nothing_any_more_ends():
    brokers = Brokers(leaders=[0, 1, 1])
    world = World(brokers, metadata_refresh_s=5.0)
    assert world.partitions() == [(0,), (1, 2)]
    assert sorted(brokers.open_links()) == [0, 1]
    brokers.leaders = [0, 0, 2]
    world.advance(6.0)
    assert world.partitions() == [(0, 1), (2,)]
    assert sorted(brokers.open_links()) == [0, 2]


def test_a_partition_changes_its_connection_only_when_nothing_is_under_way():
    brokers = Brokers(leaders=[0])
    world = World(brokers, metadata_refresh_s=5.0)
    first = world.add(b"a")
    brokers.leaders = [1]
    world.advance(6.0)
    second = world.add(b"b")
    (_, old, _), (_, new, _) = brokers.links
    assert [batch.messages for batch, _ in old.sent] == [[b"a"]]
    assert not new.sent
    old.run()
    world.advance(0.0)
    assert [batch.messages for batch, _ in new.sent] == [[b"b"]]
    new.run()
    assert brokers.server.log == [b"a", b"b"]
    assert (first.result(0).pointer, second.result(0).pointer) == (1, 2)
    assert old.is_closed


def test_what_comes_for_a_topic_that_was_made_anew_goes_to_the_partitions_that_it_has_now():
    brokers = Brokers(leaders=[0, 0, 0])
    world = World(brokers, metadata_refresh_s=5.0, strategy="strict_round_robin")
    world.add(b"a")
    brokers.run()
    brokers.leaders = [0]
    world.advance(6.0)
    deliveries = [world.add(b"b"), world.add(b"c"), world.add(b"d")]
    brokers.run()
    assert [each.result(0).partition for each in deliveries] == [0, 0, 0]


def test_a_topic_that_was_made_anew_with_fewer_partitions_has_as_many_workers_as_it_may():
    brokers = Brokers(leaders=[0, 0, 0])
    world = World(brokers, metadata_refresh_s=5.0, ordered=False, workers=6)
    assert len(world.topic.workers) == 6
    brokers.leaders = [0]
    world.advance(6.0)
    assert world.partitions() == [(0,)] * 6


def test_a_topic_that_was_made_anew_with_one_partition_sends_at_once_as_others_with_one():
    brokers = Brokers(leaders=[0, 0])
    world = World(brokers, metadata_refresh_s=5.0)
    assert world.topic.only is None
    brokers.leaders = [0]
    world.advance(6.0)
    assert world.topic.only is not None
    assert world.topic.only.partition == 0
    assert world.topic.info().workers_limit == 1


def test_a_partition_without_a_leader_waits_for_one_and_not_for_the_next_refresh():
    brokers = Brokers(leaders=[0, None])
    world = World(brokers, reconnect_max_s=5.0, strategy="strict_round_robin")
    deliveries = [world.add(b"a"), world.add(b"b")]
    brokers.run()
    assert [each.done() for each in deliveries] == [True, False]
    brokers.leaders = [0, 0]
    world.advance(6.0)
    brokers.run()
    assert deliveries[1].result(0).partition == 1
    before = brokers.asked_count
    world.advance(50.0)
    assert brokers.asked_count == before


def test_a_backlog_leads_to_more_workers_and_they_go_some_time_after_it():
    brokers = Brokers(leaders=[0, 0, 0])
    world = World(
        brokers, workers_max=3, worker_idle_s=10.0, in_flight=1, batch_count=1, partitions=3
    )
    assert len(world.topic.workers) == 1
    for i in range(30):
        world.add(b"%d" % i)
    world.advance(3.0)
    assert len(world.topic.workers) == 2
    world.advance(3.0)
    assert len(world.topic.workers) == 3
    for _ in range(30):
        brokers.run()
        world.advance(0.0)
    world.advance(30.0)
    assert len(world.topic.workers) == 1
    assert len(brokers.server.log) == 30


def test_a_broker_that_says_nothing_is_hung_up_on_and_gets_it_again():
    world = World(request_timeout_s=5.0)
    brokers = world.brokers
    delivery = world.add(b"a")
    world.advance(7.0)
    (_, silent, _), (_, again, _) = brokers.links
    assert silent.is_closed
    again.run()
    assert delivery.result(0).pointer == 1


def test_a_broker_that_says_nothing_ends_no_downtime(caplog):
    down = []
    events = {"time_down": lambda *told: down.append(told[-1])}
    world = World(request_timeout_s=6.0, reconnect_max_s=2.0, callbacks=events)
    world.add(b"a")
    world.advance(50.0)
    assert down == []
    assert "no answer for 6.0 s" in str(world.topic.last_error)
    assert len(world.brokers.connects_s) > 5
    assert len(caplog.records) == 2
    while not world.brokers.open_links():
        world.advance(0.5)
    world.brokers.run()
    world.advance(1.0)
    assert len(down) == 1


def test_what_a_broker_does_not_answer_is_given_up_in_time_and_what_came_later_is_delivered():
    world = World(delivery_timeout_s=10.0, request_timeout_s=4.0)
    brokers = world.brokers
    old = world.add(b"a")
    world.advance(8.0)
    young = world.add(b"b")
    world.advance(3.0)
    with pytest.raises(DeliveryTimeout, match="they may be stored"):
        old.result(0)
    assert not young.done()
    assert brokers.open_links() == [0]
    late = world.add(b"c")
    brokers.run()
    assert brokers.server.log == [b"b", b"c"]
    assert [each.result(0).pointer for each in (young, late)] == [1, 2]
    assert world.accumulator.count == world.accumulator.size == 0


def test_an_answer_that_comes_after_its_messages_were_given_up_is_nobody_s():
    world = World(delivery_timeout_s=10.0)
    delivery = world.add(b"a")
    (_, link, _) = world.brokers.links[0]
    link.store()
    world.advance(9.0)
    young = world.add(b"b")
    link.store()
    world.advance(2.0)
    assert isinstance(delivery.exception(0), DeliveryTimeout)
    link.run()
    assert not young.done()
    world.brokers.run()
    assert young.result(0).pointer == 2
    assert world.brokers.server.log == [b"a", b"b"]


def test_a_topic_whose_actors_crash_too_often_begins_anew_with_what_it_has():
    world = World()
    delivery = world.add(b"a")
    for _ in range(11):
        world.system.exit(f"workers of {TOPIC!r}", "kill")
    assert world.system.is_alive(world.tree)
    world.brokers.run()
    assert world.topic.state == "ready"
    assert delivery.result(0).pointer == 1


def test_actors_that_crash_again_and_again_end_the_tree():
    world = World()
    ended: list[object] = []
    world.system.when_ended(world.tree, ended.append)
    for _ in range(130):
        world.system.exit("topic_sup", "kill")
    assert ended == ["shutdown"]


def test_refreshes_do_not_multiply():
    world = World(metadata_refresh_s=5.0)
    for _ in range(5):
        world.brokers.lose()
        world.advance(0.5)
    world.advance(5.0)
    before = world.brokers.asked_count
    world.advance(51.0)
    assert world.brokers.asked_count - before in {10, 11}


def test_a_partition_that_is_to_stay_after_all_goes_on_where_it_is():
    """A backlog has one worker more, and then another: the last partition is dealt out twice."""
    brokers = Brokers(leaders=[0, 0, 0, 0])
    world = World(
        brokers,
        workers_max=3,
        in_flight=1,
        batch_count=1,
        request_timeout_s=60.0,
        picker=lambda topic, key, partitions: 3,
    )
    deliveries = [world.add(b"%d" % i) for i in range(5)]
    world.advance(3.0)
    assert world.partitions() == [(0, 2), (1, 3)]
    world.advance(3.0)
    assert world.partitions() == [(0, 3), (1,), (2,)]
    for _ in range(10):
        brokers.run()
        world.advance(0.0)
    assert [each.done() for each in deliveries] == [True] * 5


def test_what_waits_is_told_though_nothing_comes_and_nothing_is_answered():
    brokers = Brokers()
    sink = MemorySink()
    world = World(brokers, metrics=[sink])
    world.add(b"a", b"b")
    world.advance(1.0)
    assert sink.gauges["messages_buffered"] == 2
    brokers.down = {0}
    brokers.lose()
    world.advance(1.0)
    later = world.add(b"c")
    assert world.topic.withdraw(later, BrokerDown(TOPIC, "no answer"))
    world.advance(1.0)
    assert sink.gauges["messages_buffered"] == 2


def test_an_interrupt_while_a_list_with_keys_is_taken_costs_no_room():
    keyed = [Message(b"%d" % number, b"%d" % number) for number in range(4)]
    for interrupted in places("poe/client/producer/payload.py", "poe/client/producer/batch.py"):
        world = World(Brokers(leaders=(0, 0)), strategy="custom")
        interrupted(partial(world.add, *keyed))
        later = world.add(Message(b"later", b"key"))
        for _ in range(3):
            world.brokers.run()
            world.advance(1.0)
        assert later.done()
        assert world.accumulator.count == 0
