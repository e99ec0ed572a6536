"""Mappings at a real node: what goes wrong, and what it costs."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from time import time_ns

import pytest

from poe.broker.appendix.hybrid_clock import HybridClock
from poe.client import Consumer
from poe.client.group.dead_letter import DeadLetter
from poe.client.group.redrive import redrive
from poe.errors import (
    CorruptGroup,
    InvalidTopicName,
    OptionError,
    Overloaded,
    RulesChanged,
    SecurityFileError,
    UnderCopies,
    UnknownGroup,
)
from poe.mapping import Columns, Drop, RuleSet, Stop
from poe.mapping.doors import Doors, Place, Signals, Status
from poe.mapping.function_file import find_function
from poe.mapping.judge import Judge
from poe.mapping.plan import Plan, topic_key
from poe.mapping.report import Reporter
from poe.mapping.rule import Call, OnError, Route, Rule, Source
from poe.mapping.runner import Runner
from poe.mapping.station import RunOptions
from poe.mapping.unit import Describe, Read
from poe.mapping.watch import Watch
from poe.protocol import socket as connect
from poe.protocol.envelope import encode
from poe.protocol.server import Server
from poe.security.credentials import TokenFile
from poe.testing import broker
from tests.broker.damaged_group import damage_group
from tests.client.consumers import url
from tests.mapping.flaky import failing
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

OPTIONS = RunOptions(session_s=1.0, batch=64)


@pytest.fixture(scope="module")
def server():
    with broker() as started:
        yield started


@pytest.fixture
def names(request):
    """Names of a source and a target that no other test has."""
    number = abs(hash(request.node.name)) % 10**9
    return f"source-of-{number}x", f"target-of-{number}x"


def rules(names, function=None, **options):
    source, target = names
    route = Route(to=(target,))
    fate = route if function is None else Call(function=function, name="f", pure=True, route=route)
    base = RuleSet(
        name=f"m{source}",
        source=Source(topics=(source,)),
        otherwise=Drop(""),
        decode="json",
        rules=(Rule(id="all", fate=fate, body={"number": {"exists": True}}),),
    )
    return replace(base, **options)


def put(server, topic, numbers):
    server.node.put_many(topic, [json.dumps({"number": each}).encode() for each in numbers])


def stored(server, topic):
    return [json.loads(each.value)["number"] for each in server.collected(topic)]


def run(server, rule_set, load=lambda: None, options=OPTIONS):
    return Runner(rule_set, server.url, options, load)


def test_messages_are_mapped_in_their_order_and_a_second_run_goes_on(server, names):
    source, target = names
    put(server, source, range(500))
    with run(server, rules(names)):
        wait_until(lambda: len(stored(server, target)) == 500, 20)
    put(server, source, range(500, 600))
    with run(server, rules(names)):
        wait_until(lambda: len(stored(server, target)) == 600, 20)
    assert stored(server, target) == list(range(600))


def test_messages_that_go_on_tell_where_they_come_from(server, names):
    source, target = names
    server.node.control("topic_create", topic=target.encode(), properties={"envelope": True})
    put(server, source, [1])
    with run(server, rules(names)):
        wait_until(lambda: server.collected(target), 20)
    (found,) = server.collected(target)
    (came,) = server.collected(source)
    assert found.headers == {
        "poe-origin": f"{source}/{came.pointer}".encode(),
        "poe-hops": b"1",
    }


def test_what_is_tried_again_unordered_holds_nobody_and_comes_once(server, names):
    source, target = names
    flaky = failing({3: 2, 7: 1})
    rule_set = rules(
        names,
        flaky,
        retries="unordered",
        on_error=OnError(retry=3, backoff_s=(0.05, 0.1)),
    )
    put(server, source, range(10))
    with run(server, rule_set):
        wait_until(lambda: len(stored(server, target)) == 10, 20)
    found = stored(server, target)
    assert found[:8] == [0, 1, 2, 4, 5, 6, 8, 9]
    assert sorted(found) == list(range(10))


def test_letters_and_what_waits_are_envelopes_on_topics_that_were_made_without_them(server, names):
    source, target = names
    dead = f"m{source}.dead"
    for name in (dead, f"m{source}.retry"):
        server.node.create_topic(name)
    rule_set = rules(
        names,
        failing({3: 9, 4: 1}),
        retries="unordered",
        on_error=OnError(retry=1, backoff_s=(0.05, 0.1)),
    )
    put(server, source, range(5))
    with run(server, rule_set):
        wait_until(lambda: len(stored(server, target)) == 4 and server.collected(dead), 20)
    assert sorted(stored(server, target)) == [0, 1, 2, 4]
    [found] = server.collected(dead)
    letter = DeadLetter.of(found.value)
    assert (letter.topic, letter.attempts) == (source.encode(), 2)
    assert letter.message == b'{"number": 3}'


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_message_for_which_no_letter_has_room_holds_up_nothing_and_is_put_back(names, partitions):
    source, target = names
    with broker(message_max=1000) as small:
        small.node.create_topic(source, partitions=partitions)
        part = source if partitions == 1 else f"{source}-1"
        large = b"x" * 1000
        small.node.put_many(part, [b"{", large, b'{"number": 7}'])
        rule_set = rules(names)
        with run(small, rule_set):
            wait_until(lambda: stored(small, target) == [7], 20)
        letters = [each.headers or {} for each in small.collected(f"{rule_set.name}.dead")]
        assert [b"no json" in each["poe.reason"] for each in letters] == [True, True]
        assert ["poe.large" in each for each in letters] == [False, True]
        assert small.node.address is not None
        with connect(*small.node.address) as connection:
            assert redrive(connection, small.url, f"mapping.{rule_set.name}", {}) == (2, 0)
        values = [each.value for each in small.collected(source)]
        assert (values.count(large), values.count(b"{")) == (2, 2)


def test_a_message_without_room_in_its_letter_is_put_back_and_not_another_of_its_pointer(
    names, monkeypatch
):
    source, target = names
    now_us = time_ns() // 1000
    monkeypatch.setattr(HybridClock, "now_us", lambda _: now_us)
    with broker(message_max=1000) as small:
        small.node.create_topic(source, partitions=2)
        large, other = b"x" * 1000, b'{"number": 2}'
        small.node.put_many(f"{source}-0", [b'{"number": 1}', other])
        small.node.put_many(f"{source}-1", [b'{"number": 3}', large])
        monkeypatch.undo()
        rule_set = rules(names)
        with run(small, rule_set):
            wait_until(lambda: len(stored(small, target)) == 3, 20)
            wait_until(lambda: small.collected(f"{rule_set.name}.dead"), 20)
        assert small.node.address is not None
        with connect(*small.node.address) as connection:
            assert redrive(connection, small.url, f"mapping.{rule_set.name}", {}) == (1, 0)
        values = [each.value for each in small.collected(source)]
        assert (values.count(large), values.count(other)) == (2, 1)


def test_a_topic_of_dead_letters_that_is_deleted_takes_large_ones_when_it_is_made_anew(names):
    source, target = names
    with broker(message_max=1000) as small:
        rule_set = rules(names)
        dead = f"{rule_set.name}.dead"
        with run(small, rule_set):
            for _ in range(2):
                small.node.put_many(source, [b"x" * 1000, b'{"number": 1}'])
                wait_until(lambda: small.collected(dead) and stored(small, target) == [1], 20)
                for each in (dead, target):
                    small.node.control("delete", topic=each.encode())


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_message_that_has_waited_without_room_in_its_letter_is_put_back(names, partitions):
    source = names[0]
    with broker(message_max=1000) as small:
        retries = {"retries": "unordered", "on_error": OnError(retry=1, backoff_s=(0.05, 0.1))}
        rule_set = rules(names, failing({3: 9}), **retries)
        small.node.create_topic(f"{rule_set.name}.retry", partitions=partitions, envelope=True)
        large = json.dumps({"number": 3, "text": "x" * 780}).encode()
        small.node.put(source, large)
        with run(small, rule_set):
            wait_until(lambda: small.collected(f"{rule_set.name}.dead"), 20)
        assert small.node.address is not None
        with connect(*small.node.address) as connection:
            assert redrive(connection, small.url, f"mapping.{rule_set.name}", {}) == (1, 0)
        assert [each.value for each in small.collected(source)] == [large, large]


def test_what_is_tried_again_in_order_holds_those_behind_it(server, names):
    source, target = names
    flaky = failing({3: 2})
    on_error = OnError(retry=3, backoff_s=(0.05, 0.1))
    put(server, source, range(10))
    with run(server, rules(names, flaky, on_error=on_error)):
        wait_until(lambda: len(stored(server, target)) == 10, 20)
    assert stored(server, target) == list(range(10))


def test_with_stop_it_waits_and_nothing_is_dead(server, names):
    source, target = names
    away = [True]

    def guarded(message):
        return Stop("the database is away") if away and message.body["number"] == 5 else message

    put(server, source, range(10))
    with run(server, rules(names, guarded, on_error=OnError(backoff_s=(0.05, 0.1)))) as runner:
        wait_until(lambda: [each.status.state for each in runner.station.runs()] == ["stopped"], 20)
        assert stored(server, target) == list(range(5))
        away.clear()
        wait_until(lambda: len(stored(server, target)) == 10, 20)
    assert not server.collected(f"m{source}.dead")


def test_while_the_target_is_full_it_waits(server, names):
    source, target = names
    put(server, source, range(100))
    server.fail(Overloaded("puts_max", 7), 3)
    with run(server, rules(names)):
        wait_until(lambda: len(stored(server, target)) == 100, 30)
    assert stored(server, target) == list(range(100))


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_target_that_is_deleted_meanwhile_is_made_anew_as_messages_need_it(
    server, names, partitions
):
    """What it was told to have lay in no envelope, or where nobody who reads it looks."""
    source, target = names
    for topic in names:
        server.node.create_topic(topic, envelope=True, partitions=partitions)
    with run(server, rules(names)):
        for number in range(2):
            message = encode(b"key", json.dumps({"number": number}).encode(), None)
            server.node.put(source if partitions == 1 else f"{source}-1", message)
            wait_until(lambda: server.collected(target), 20)
            assert [each.key for each in server.collected(target)] == [b"key"]
            assert stored(server, target) == [number]
            server.node.control("delete", topic=target.encode())
    assert not [each for each in server.node.topics() if each.startswith(target.encode())]


def test_what_a_queue_holds_on_fewer_nodes_than_was_asked_for_is_not_put_again(server, names):
    source, target = names
    put(server, source, [1])
    server.fail(UnderCopies(2, 1))  # of which nothing is stored here
    with run(server, rules(names)) as runner:
        wait_until(lambda: [each.status.batches for each in runner.station.runs()] == [1], 20)
        put(server, source, [2])
        wait_until(lambda: stored(server, target), 20)
    assert stored(server, target) == [2]


def test_while_the_server_is_away_it_waits_and_a_reply_that_is_lost_repeats_nothing(server, names):
    source, target = names
    put(server, source, range(100))
    server.lose_replies(2)
    with run(server, rules(names)):
        wait_until(lambda: stored(server, target), 30)
        server.stop()
        put(server, source, range(100, 200))
        server.start()
        wait_until(lambda: len(stored(server, target)) == 200, 30)
    assert stored(server, target) == list(range(200))


def test_a_worker_that_crashes_is_started_anew_and_nothing_comes_twice(server, names, monkeypatch):
    source, target = names
    count = Doors._count  # noqa: SLF001 - the place of the crash
    crashes = [1, 2]

    def crash(*arguments):
        if crashes:
            crashes.pop()
            raise ZeroDivisionError
        count(*arguments)

    monkeypatch.setattr(Doors, "_count", crash)
    put(server, source, range(300))
    with run(server, rules(names)):
        wait_until(lambda: len(stored(server, target)) >= 300, 30)
    assert stored(server, target) == list(range(300))


def test_a_new_file_holds_from_the_next_batch_on_and_a_bad_one_not_at_all(server, names, tmp_path):
    source, target = names
    path = tmp_path / "m.toml"

    def write(to):
        path.write_text(
            f'name = "m{source}"\nsource = {{ topics = ["{source}"] }}\notherwise = "drop"\n'
            f'[[rule]]\nid = "all"\nto = "{to}"\nbody = {{ number = {{ exists = true }} }}\n'
        )

    write(target)
    put(server, source, range(3))
    watch = Watch(path)
    with run(server, watch.rules, watch) as runner:
        wait_until(lambda: len(stored(server, target)) == 3, 20)
        path.write_text("name = ")
        wait_until(lambda: runner.station.notes, 20)
        assert "the rules stay as they were" in runner.station.notes[-1]
        put(server, source, range(3, 6))
        wait_until(lambda: len(stored(server, target)) == 6, 20)
        write(target + ".new")
        wait_until(lambda: "new rules hold" in runner.station.notes[-1], 20)
        put(server, source, range(6, 9))
        wait_until(lambda: len(stored(server, target + ".new")) == 3, 20)
    assert stored(server, target) == list(range(6))


def test_a_stop_ends_the_batch_that_is_under_way_and_says_how_far_it_is(server, names):
    """Else other rules are refused at the next start, and a process seems to have died of it."""
    source, target = names
    has_begun, may_end = threading.Event(), threading.Event()

    def slow(message):
        has_begun.set()
        may_end.wait(20)
        return message

    put(server, source, range(3))
    with run(server, rules(names, slow)) as runner:
        has_begun.wait(20)
        [one] = runner.station.runs()
        stopping = threading.Thread(target=runner.stop)
        stopping.start()
        one.signals.leave.wait(20)
        is_cut_off = one.signals.lost.wait(0.5)
        may_end.set()
        stopping.join()
    assert not is_cut_off
    assert stored(server, target) == [0, 1, 2]
    [(pointer, data)] = server.node.control("group_positions", group=f"mapping.m{source}").values()
    assert pointer == server.collected(source)[-1].pointer
    plan = Plan.decode(data)
    assert plan.is_empty
    assert plan.trial is None


def test_the_node_is_told_that_a_mapping_has_stopped_once_it_has_left(server, names, monkeypatch):
    source = names[0]
    report, left = Reporter._report, []  # noqa: SLF001 - when it is told

    def noting(reporter, has_stopped):
        members = server.node.control("group", group=f"mapping.m{source}")["members"]
        left.extend([not members] * has_stopped)
        report(reporter, has_stopped)

    put(server, source, [1])
    with run(server, rules(names)) as runner:
        wait_until(lambda: rule_counts(server, runner.station.rules.name).get("all"), 20)
        monkeypatch.setattr(Reporter, "_report", noting)
    assert left == [True]


def test_a_batch_that_was_planned_before_new_rules_came_is_repeated_with_those_of_before(
    server, names
):
    """Nobody was killed: the node was away, and all partitions went through the group once."""
    source, target = names
    rule_set = rules(names)
    changed = replace(rule_set, rules=(Rule(id="all", fate=Route(to=(f"{target}2",))),))
    coming: list[RuleSet] = []
    put(server, source, [1])
    with run(server, rule_set, lambda: coming.pop() if coming else None) as runner:
        wait_until(lambda: stored(server, target) == [1], 20)
        server.fail(Overloaded("puts_max", 7), 10_000)
        put(server, source, [2])
        wait_until(lambda: any(each.status.reason for each in runner.station.runs()), 20)
        server.stop()
        coming.append(changed)
        wait_until(lambda: runner.station.rules is changed, 20)
        server._proxy.failures.clear()  # noqa: SLF001 - it has failed for long enough
        group = f"mapping.m{source}"
        wait_until(lambda: not server.node.control("group", group=group)["members"], 20)
        server.start()
        put(server, source, [3])
        wait_until(lambda: stored(server, f"{target}2") or runner.join(0), 20)
    assert stored(server, target) == [1, 2]
    assert stored(server, f"{target}2") == [3]


def test_a_batch_that_was_planned_with_other_rules_is_refused(server, names):
    source, target = names
    rule_set = rules(names)
    put(server, source, range(3))
    last = server.collected(source)[-1].pointer
    plan = Plan(life=1, number=1, first=0, last=last, count=3, rules=b"other")
    group = f"mapping.{rule_set.name}"
    member = {"group": group, "member": b"m" * 16}
    control = server.node.control
    told = control("group_join", mode="ordered", topics=[source.encode()], options={}, **member)
    wait_until(lambda: control("group", group=group)["units"][0]["owner"] is not None)
    told = control("group_heartbeat", generation=told["generation"], owned=[], wait_s=0, **member)
    positions = {source.encode(): [0, plan.encode()]}
    control("group_commit", generation=told["generation"], positions=positions, **member)
    control("group_leave", **member)
    with run(server, rule_set) as runner, pytest.raises(RulesChanged, match="--may-repeat"):
        runner.join(20)
    with run(server, rule_set, options=replace(OPTIONS, may_repeat=True)):
        wait_until(lambda: len(stored(server, target)) == 3, 20)


@pytest.mark.parametrize("other", ["source", "retries"])
def test_what_its_group_was_not_made_for_is_refused_with_a_way_out(server, names, other):
    source, target = names
    put(server, source, [1])
    with run(server, rules(names)):
        wait_until(lambda: stored(server, target), 20)
    changed = {"source": Source(topics=(source, f"{source}2")), "retries": "unordered"}
    rule_set = rules(names, **{other: changed[other]})
    with run(server, rule_set) as runner, pytest.raises(OptionError) as refused:
        runner.join(20)
    assert f"has topics '{source}', not '{source}', '" in str(refused.value)
    assert f"poe group delete mapping.m{source}" in str(refused.value)


def test_a_mapping_whose_group_is_deleted_says_so_and_begins_nothing_anew(server, names):
    source, target = names
    put(server, source, [1])
    with run(server, rules(names)) as runner:
        wait_until(lambda: stored(server, target) == [1], 20)
        server.node.control("group_delete", group=f"mapping.m{source}", force=True)
        with pytest.raises(UnknownGroup):
            runner.join(20)
    assert stored(server, target) == [1]


def test_a_mapping_whose_group_is_made_anew_for_other_topics_says_so(server, names):
    source, target = names
    put(server, source, [1])
    with run(server, rules(names)) as runner:
        wait_until(lambda: stored(server, target) == [1], 20)
        named = {"group": f"mapping.m{source}"}
        server.stop()
        server.node.control("group_delete", **named, force=True)
        server.node.control("group_create", **named, mode="ordered", topics=["another"])
        server.start()
        with pytest.raises(OptionError, match="has topics 'another'"):
            runner.join(20)


def test_a_mapping_of_a_topic_that_can_never_be_says_so_at_once(server, names, caplog):
    rule_set = replace(rules(names), source=Source(topics=("a/b",)))
    with run(server, rule_set) as runner, pytest.raises(InvalidTopicName):
        runner.join(20)
    assert not [each for each in caplog.records if each.exc_info]


def test_a_mapping_whose_group_is_damaged_says_so_at_once(serve, tmp_path):
    rule_set = rules(("source", "target"))
    node = serve(dir=tmp_path / "data")
    node.control("group_create", group="other", mode="ordered", topics=["source"])
    damage_group(node, f"mapping.{rule_set.name}")
    node.stop()
    node = serve(dir=tmp_path / "data")
    with Runner(rule_set, url(node)) as runner, pytest.raises(CorruptGroup):
        runner.join(20)


def test_a_file_of_credentials_that_is_not_there_ends_it_with_its_name(server, names, tmp_path):
    """It was thirty crashes, and an end that said nothing of a file."""
    runner = Runner(rules(names), server.url, OPTIONS, credentials=TokenFile(tmp_path / "token"))
    with runner, pytest.raises(SecurityFileError, match="token: cannot be read"):
        runner.join(20)


def test_the_node_knows_what_runs(server, names):
    source, _ = names
    put(server, source, range(3))
    with run(server, rules(names)) as runner:
        name = runner.station.rules.name
        wait_until(
            lambda: any(
                each["name"].startswith(name + " ") and each["queries"][0]["state"] == "idle"
                for each in server.node.control("pipelines")
            ),
            20,
        )
        wait_until(lambda: rule_counts(server, name).get("all") == {"to": 3}, 20)


def test_the_node_knows_why_it_waits_whatever_the_reason_holds(server, names):
    """Without a report it cannot be stopped from there, either."""
    source, _ = names

    def bad(message):
        raise ValueError(message.value.decode("utf-8", "surrogateescape"))

    server.node.put(source, b'{"number": 1}\xff')
    on_error = OnError(retry=5, backoff_s=(60, 60))
    rule_set = rules(names, bad, on_error=on_error, undecodable="otherwise")
    rule_set = replace(rule_set, rules=(replace(rule_set.rules[0], body=None),))
    with run(server, rule_set) as runner:
        name = f"{runner.station.rules.name} "
        wait_until(
            lambda: any(
                each["queries"][0]["last_error"].startswith('f: ValueError: {"number": 1}\\udcff, ')
                for each in server.node.control("pipelines")
                if each["name"].startswith(name)
            ),
            20,
        )


def rule_counts(server, name):
    """Return what the node knows of each rule of a mapping."""
    told = [
        each for each in server.node.control("pipelines") if each["name"].startswith(f"{name} ")
    ]
    return {rule["name"]: rule["counts"] for each in told for rule in each["rules"]}


def test_the_group_is_as_far_as_the_mapping(server, names):
    source, target = names
    put(server, source, range(10))
    with run(server, rules(names)):
        wait_until(lambda: len(stored(server, target)) == 10, 20)
    lag = server.node.control("group_lag", group=f"mapping.m{source}")
    assert [each["messages"] for each in lag.values()] == [0]
    with Consumer(server.url, source, group="another") as consumer:
        assert len(list(consumer)) == 10


def test_processes_of_functions_end_with_their_rules_and_with_the_unit(server, names, tmp_path):
    """Whatever still knows of the work, as an error that was raised meanwhile does."""
    source, target = names
    (tmp_path / "f.py").write_text(
        "import os\n"
        "from poe.mapping import To\n"
        f"def f(message): return To('{target}', b'%d' % os.getpid())\n"
    )
    function = find_function(tmp_path, "f.py:f").function
    call = Call(function=function, name="f.py:f", pure=True, isolation="process")
    rule_set = replace(rules(names), rules=(Rule(id="all", fate=call),))

    def pids():
        return [int(each.value) for each in server.collected(target)]

    put(server, source, [1])
    with run(server, rule_set) as runner:
        wait_until(lambda: len(pids()) == 1, 20)
        [one] = runner.station.runs()
        before = one._judges  # noqa: SLF001 - who knows of them
        runner.station.rules = replace(rule_set, hops_max=7)
        put(server, source, [2])
        wait_until(lambda: len(pids()) == 2, 20)
        wait_until(lambda: not Path(f"/proc/{pids()[0]}").exists(), 20)
    wait_until(lambda: not Path(f"/proc/{pids()[1]}").exists(), 20)
    assert before is not one._judges  # noqa: SLF001 - likewise


def test_rules_that_a_batch_is_at_are_closed_only_behind_it(server, names, monkeypatch):
    source, target = names
    seen: list[list[int]] = []
    monkeypatch.setattr(Judge, "close", lambda _: seen.append(stored(server, target)))

    def changing(message):
        runner.station.rules = new
        return message

    rule_set = rules(names, changing)
    new = replace(rule_set, hops_max=7)
    put(server, source, [1])
    with run(server, rule_set) as runner:
        wait_until(lambda: stored(server, target) == [1], 20)
        put(server, source, [2])
        wait_until(lambda: stored(server, target) == [1, 2], 20)
        put(server, source, [3])
        wait_until(lambda: stored(server, target) == [1, 2, 3], 20)
    assert seen == [[1], [1, 2, 3]]


def carry_out(server, names, work):
    """Have the doors of a unit carry out effects; return what was told to people."""
    source = names[0].encode()
    host, _, port = server.url.removeprefix("poe://").rpartition(":")
    place = Place([Server(host, int(port))], "mapping.m", b"m" * 16, 1, source, source)
    told: list[str] = []
    Doors(place, rules(names), Status(source), Signals(), told.append).carry_out(work)
    return told


def test_a_target_that_was_deleted_has_as_many_partitions_as_its_batch_was_planned_for(
    server, names
):
    target = names[1].encode()

    def work():
        described = yield Describe({target: False}, {topic_key(target): 3})
        assert described[target].partitions == tuple(target + b"-%d" % each for each in range(3))

    assert carry_out(server, names, work()) == []
    assert len(server.node.describe(target).partitions) == 3


def test_a_topic_that_is_made_only_now_is_read_as_it_was_made(server, names):
    source = names[0].encode()
    answers: list[object] = []

    def work():
        answers.append((yield Read(0, 5, 1)))
        server.node.create_topic(source, envelope=True)
        server.node.put(source, encode(b"key", b"1", None))
        answers.append((yield Read(0, None, 10)))

    assert carry_out(server, names, work()) == []
    nothing, columns = answers
    assert nothing is None
    assert isinstance(columns, Columns)
    assert (columns.keys, columns.values) == ([b"key"], [b"1"])
