"""Mappings of replicated topics at several nodes: what one node lacks, another one has."""

import json
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from poe.cli.exit_code import ExitCode
from poe.client import Consumer
from poe.errors import NotReplicated, OptionError
from poe.mapping import Dead, RuleSet, doors
from poe.mapping.doors import Doors, Place, Signals, Status
from poe.mapping.plan import Sent, topic_key
from poe.mapping.rule import Call, OnError, Route, Rule, Source
from poe.mapping.runner import Runner
from poe.mapping.station import RunOptions
from poe.mapping.unit import ANEW, Describe, Read, Store
from poe.protocol import PutId
from poe.protocol.server import Server
from tests.cli.processes import Background, poe_here
from tests.cluster.log.replicated import replicated
from tests.mapping.flaky import failing
from tests.ports import quiet_ports
from tests.waiting import wait_until

RULES = RuleSet(
    name="m",
    source=Source(topics=("t",)),
    otherwise=Dead("it is odd"),
    decode="json",
    rules=(Rule(id="even", fate=Route(to=("even",)), body={"kind": 0}),),
)
OPTIONS = RunOptions(session_s=1.0, batch=7)


@contextmanager
def listening(folder, names):
    ports = dict(zip(names, quiet_ports(len(names)), strict=True))
    with replicated(folder, names, ports=ports) as nodes:
        yield nodes


@pytest.fixture
def three(tmp_path):
    with listening(tmp_path, "abc") as nodes:
        yield nodes


@pytest.fixture
def four(tmp_path):
    """Three of them are enough to make or to alter a topic."""
    with listening(tmp_path, "abcd") as nodes:
        nodes["a"].create_topic("t", replicas=3)
        nodes.wait_same()
        yield nodes


@pytest.fixture
def topic(three):
    three["a"].create_topic("t", replicas=3, count_limit=5)
    return three


def url(nodes, names="abc"):
    return "poe://" + ",".join(f"127.0.0.1:{nodes.ports[name]}" for name in names)


def put(nodes, name, numbers):
    messages = [json.dumps({"number": each, "kind": each % 2}).encode() for each in numbers]
    return [nodes[name].put("t", each) for each in messages]


def numbers(nodes, name, topic):
    """The numbers on a topic at a node, in their order."""
    if topic.encode() not in nodes[name].topics():
        return []
    with Consumer(url(nodes, name), topic) as consumer:
        return [json.loads(each.value or b"")["number"] for each in consumer]


class Carried:
    """Effects, carried out in a thread against some nodes, of which the first is asked first."""

    def __init__(self, nodes, names, *effects):
        servers = [Server("127.0.0.1", nodes.ports[name]) for name in names]
        place = Place(servers, "mapping.m", b"m" * 16, 1, b"t", b"t")
        self.status, self.signals = Status(b"t"), Signals()
        self.answers: list[object] = []
        doors = Doors(place, RULES, self.status, self.signals, lambda _: None)

        def work():
            for each in effects:
                self.answers.append((yield each))

        self._count = len(effects)

        self._thread = threading.Thread(target=doors.carry_out, args=(work(),), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.signals.end()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def answer(self):
        """Return the last answer, behind all others."""
        wait_until(lambda: len(self.answers) == self._count, 60)
        return self.answers[-1]


def test_planned_messages_that_a_copy_has_yet_to_get_are_read_at_another_node(topic, monkeypatch):
    monkeypatch.setattr(doors, "_COPY_S", 0.5)
    pointers = put(topic, "a", range(3))
    topic.wait_same()
    topic.log.cut("c")
    pointers += put(topic, "a", range(3, 5))
    with Carried(topic, "ca", Read(0, pointers[-1], 5)) as carried:
        assert carried.answer().pointers == pointers
        assert f"has not got topic t up to pointer {pointers[-1]}" in carried.status.reason


def test_planned_messages_that_no_copy_has_yet_are_waited_for(topic, monkeypatch):
    monkeypatch.setattr(doors, "_COPY_S", 0.5)
    put(topic, "a", range(3))
    topic.wait_same()
    topic.log.cut("c")
    pointers = put(topic, "a", range(3, 5))
    with Carried(topic, "c", Read(pointers[0] - 1, pointers[-1], 2)) as carried:
        wait_until(lambda: carried.status.state == "waiting", 60)
        assert "has not got topic t" in carried.status.reason
        assert not carried.answers
        topic.log.heal("c")
        assert carried.answer().pointers == pointers


def test_planned_messages_that_were_deleted_are_gone_at_once(topic):
    pointers = put(topic, "a", range(12))
    topic["a"].control("trim", topic=b"t", pointer=pointers[4])
    topic.wait_same()
    with Carried(topic, "cab", Read(0, pointers[4], 5)) as carried:
        assert carried.answer() is None
        assert carried.status.state == "running"


def test_partitions_of_which_a_node_has_yet_to_hear_are_asked_for_at_another_one(four):
    four["a"].control("topic_create", topic=b"p", properties={"replicas": 3, "partitions": 2})
    four.wait_same("p-0")
    four.log.cut("c")
    four["a"].control("topic_alter", topic=b"p", properties={"partitions": 4})
    effect = Describe({b"p": False}, {topic_key(b"p"): 4})
    with Carried(four, "ca", effect) as carried:
        assert carried.answer()[b"p"].partitions == (b"p-0", b"p-1", b"p-2", b"p-3")
        assert "has not got all 4 partitions of topic p" in carried.status.reason


def test_a_topic_of_which_a_node_has_yet_to_hear_is_not_made_there_by_a_put(four):
    four.put_own("c", "own", b"x")
    four.log.cut("c")
    four["a"].create_topic("new", replicas=3)
    store = Store([Sent(b"new", PutId(b"p" * 16, 0, 0), [b"1"])])
    with Carried(four, "ca", store, Describe({b"new": False}), store) as carried:
        assert carried.answer() is None
        assert carried.answers[0] == ANEW
    assert four.values("a", "new") == [b"1"]
    four.log.heal("c")
    four.wait_same("new")


@pytest.mark.slow
def test_a_mapping_goes_on_at_the_next_node_and_what_it_makes_is_replicated(topic):
    put(topic, "a", range(100))
    with Runner(RULES, url(topic), OPTIONS):
        wait_until(lambda: len(numbers(topic, "b", "even")) >= 10, 60)
        topic.stop("a")
        put(topic, "b", range(100, 200))
        wait_until(lambda: len(numbers(topic, "b", "even")) == 100, 30)
        topic.start("a")
        topic.stop("b")
        put(topic, "c", range(200, 300))
        wait_until(lambda: len(numbers(topic, "c", "even")) == 150, 30)
        wait_until(lambda: len(numbers(topic, "c", "m.dead")) == 150, 30)
    for name in "ac":
        assert numbers(topic, name, "even") == list(range(0, 300, 2))
        assert numbers(topic, name, "m.dead") == list(range(1, 300, 2))


@pytest.mark.slow
def test_what_is_tried_again_unordered_waits_on_a_replicated_topic(topic):
    flaky = failing({4: 2})
    fate = Call(function=flaky, name="flaky", pure=True, route=Route(to=("even",)))
    rules = replace(
        RULES,
        retries="unordered",
        on_error=OnError(retry=3, backoff_s=(0.05, 0.1)),
        rules=(Rule(id="even", fate=fate, body={"kind": 0}),),
    )
    put(topic, "a", range(10))
    with Runner(rules, url(topic), OPTIONS):
        wait_until(lambda: len(numbers(topic, "b", "even")) == 5, 60)
    assert numbers(topic, "b", "even") == [0, 2, 6, 8, 4]
    topic.wait_same("m.retry")


@pytest.mark.slow
def test_what_mappings_of_one_name_at_several_nodes_put_onto_one_topic_is_all_there(three):
    """Each node has a group of its own, and a topic of that name: who began first lost all."""
    three["a"].create_topic("even", replicas=3)
    three.wait_same("even")
    for name in "ab":
        three.create_own(name, "t")
    with ExitStack() as running:
        for round_number, name in enumerate("abab"):
            if round_number < 2:
                running.enter_context(Runner(RULES, url(three, name), OPTIONS))
            count = 10 * (round_number + 1)
            put(three, name, range(count - 10, count))
            wait_until(lambda: len(numbers(three, "c", "even")) == count // 2, 20)  # noqa: B023 - at once
    assert numbers(three, "c", "even") == list(range(0, 40, 2))


def test_a_source_of_one_node_alone_is_refused_where_others_are_to_go_on(three):
    three.create_own("a", "t")
    with (
        Runner(RULES, url(three), OPTIONS) as runner,
        pytest.raises(NotReplicated, match="topic 't'"),
    ):
        runner.join(20)


def test_a_target_of_one_node_alone_is_waited_for_where_others_are_to_go_on(topic):
    topic.create_own("a", "even")
    put(topic, "a", range(4))
    with Runner(RULES, url(topic), OPTIONS) as runner:
        runs = runner.station.runs
        wait_until(lambda: [each.status.state for each in runs()] == ["waiting"], 60)
        wait_until(lambda: "one of a node alone" in runs()[0].status.reason, 60)
        assert not numbers(topic, "a", "even")
    with Carried(topic, "ab", Describe({b"even": False})) as carried:
        wait_until(lambda: "one of a node alone" in carried.status.reason, 60)
        assert not carried.answers, "nothing is planned for what it is like at one node"


def test_a_pattern_is_refused_where_others_are_to_go_on(three):
    rules = replace(RULES, source=Source(topics=("t.*",)))
    with pytest.raises(OptionError, match="the url of one node"):
        Runner(rules, url(three), OPTIONS)
    Runner(rules, url(three, "a"), OPTIONS)


@pytest.mark.slow
def test_a_mapping_is_shown_and_stopped_at_whichever_node_it_reports_to(topic, tmp_path):
    file = tmp_path / "m.toml"
    file.write_text('name = "m"\nsource = { topics = ["t"] }\notherwise = "drop"\n')
    put(topic, "a", range(3))
    away = "poe://127.0.0.1:1," + url(topic, "cab").removeprefix("poe://")
    with Background("mapping", "run", file, "--url", away) as background:
        background.read_until(b"mapping m runs on 127.0.0.1:1,")

        def listed(names):
            return poe_here("mapping", "list", "--url", url(topic, names)).stdout.decode()

        wait_until(lambda: "\tidle\t" in listed("abc"), 60)
        assert listed("a") == ""
        told = poe_here("mapping", "show", "m", "--url", url(topic, "ab") + ",127.0.0.1:1")
        assert told.returncode == 1
        told = poe_here("mapping", "show", "m", "--url", url(topic, "abc") + ",127.0.0.1:1")
        assert "\tt\tidle\t" in told.stdout.decode()
        run = poe_here("mapping", "stop", "m", "--url", url(topic))
        assert (run.returncode, run.stdout) == (0, b"m\tstopped\n")
        assert background.process.wait(20) == 0
    run = poe_here("mapping", "list", "--url", "poe://127.0.0.1:1,127.0.0.1:2")
    assert run.returncode == ExitCode.UNREACHABLE


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_mapping_goes_on_elsewhere_when_its_node_is_cut_off_from_the_others(topic):
    """It reaches the node, which can ask nobody and puts nothing."""
    topic["a"].create_topic("even", replicas=3)
    topic["a"].create_topic("m.dead", replicas=3, envelope=True)
    put(topic, "a", range(100))
    with Runner(RULES, url(topic), OPTIONS):
        wait_until(lambda: len(numbers(topic, "b", "even")) >= 10, 60)
        topic.log.cut("a")
        put(topic, "b", range(100, 200))
        wait_until(lambda: len(numbers(topic, "b", "even")) == 100, 90)
        topic.log.heal("a")
        topic.wait_same("even")
    assert numbers(topic, "a", "even") == list(range(0, 200, 2))
