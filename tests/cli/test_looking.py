"""`poe events`, `counters`, `connections`, `config` and `search`: for people and for programs."""

import json
from time import time_ns

import pytest

from poe.broker.appendix.hybrid_clock import HybridClock
from poe.cli.application import run
from poe.cli.exit_code import ExitCode
from tests.broker.nodes import connect, kill


@pytest.fixture
def node(tmp_path, monkeypatch):
    from poe import Node  # noqa: PLC0415 - after the environment is as it should be

    with Node(dir=tmp_path / "data", port=0) as node:
        assert node.address is not None
        monkeypatch.setenv("POE_URL", "poe://{}:{}".format(*node.address))
        yield node


def lines(capfdbinary, *arguments):
    assert run(arguments) == ExitCode.OK
    return capfdbinary.readouterr().out.decode().splitlines()


def test_events_are_told_with_their_causes(node, capfdbinary):
    kill(node, "scrubber")
    ended, restarted = lines(capfdbinary, "events")
    assert ended.startswith("1\t'scrubber' of poe_sup ended with 'killed' at ")
    assert restarted.endswith(", because of 1")
    (why,) = lines(capfdbinary, "events", "--why", "2")
    assert ", because 'scrubber' of poe_sup ended with 'killed' at " in why
    (told,) = lines(capfdbinary, "events", "--why", "2", "--format", "json")
    assert [each["seq"] for each in json.loads(told)["chain"]] == [2, 1]
    assert lines(capfdbinary, "events", "--after", "2") == []
    assert json.loads(lines(capfdbinary, "events", "--format", "json")[1])["cause_seq"] == 1


def test_an_event_that_is_not_there_is_refused_with_those_that_are(node, capfdbinary):
    kill(node, "scrubber")
    assert run(["events", "--why", "99"]) == ExitCode.USAGE
    error = capfdbinary.readouterr().err.decode()
    assert "one of 1 to 2, as `poe events` lists them" in error
    assert run(["events", "--why", "1", "--follow"]) == ExitCode.USAGE


def test_counters_are_shown_by_what_topics_carry(node, capfdbinary):
    node.put("small", b"m")
    node.put("large", b"m" * 100)
    shown = lines(capfdbinary, "counters")
    assert "connections:\t1" in shown
    assert shown[-2:] == ["large\t1\t111\t0\t0\t-", "small\t1\t12\t0\t0\t-"]
    assert lines(capfdbinary, "counters", "--limit", "1")[-1] == (
        "and 1 topic more; --limit 0 shows all"
    )
    (told,) = lines(capfdbinary, "counters", "--format", "json")
    assert json.loads(told)["topics"]["small"]["messages_in"] == 1


def test_connections_and_options_are_shown(node, capfdbinary):
    with connect(node):
        assert len(lines(capfdbinary, "connections")) == 2
        (_, mine) = lines(capfdbinary, "connections", "--format", "json")
        assert json.loads(mine)["address"].startswith("127.0.0.1:")
    shown = lines(capfdbinary, "config", "--changed")
    assert shown[-1] == "port\t0\targument"
    assert "count_limit\t100000\tdefault" in lines(capfdbinary, "config")
    (told,) = lines(capfdbinary, "config", "--format", "json")
    assert json.loads(told)["port"] == {"value": 0, "from": "argument"}


def test_what_is_searched_is_found_and_where_it_ended_is_told(node, capfdbinary):
    pointers = [node.put("t", b"message %d\x1b[2J" % number) for number in range(30)]
    assert run(["search", "t", "message 2"]) == ExitCode.OK
    told = capfdbinary.readouterr()
    found = told.out.decode().splitlines()
    assert len(found) == 11
    assert found[0] == f"{pointers[2]}\t2\t13\tmessage 2\\x1b[2J"
    assert told.err.decode() == "poe: 11 matches in 740 bytes, looked to the end\n"
    assert run(["search", "t", "message", "--limit", "1"]) == ExitCode.OK
    error = capfdbinary.readouterr().err.decode()
    assert f"up to pointer {pointers[0]}; go on with --after {pointers[0]}" in error
    (one,) = lines(capfdbinary, "search", "t", "9", "--limit", "1", "--format", "json")
    assert json.loads(one)["preview"] == "message 9\x1b[2J"
    assert run(["search", "unknown", "m"]) != ExitCode.OK
    assert "unknown" in capfdbinary.readouterr().err.decode()


def test_regular_expressions_are_searched_and_refused(node, capfdbinary):
    pytest.importorskip("re2")
    for number in range(20):
        node.put("t", b"%d" % number)
    found = lines(capfdbinary, "search", "t", "^1[0-3]$", "--regex")
    assert [each.split("\t")[-1] for each in found] == ["10", "11", "12", "13"]
    assert run(["search", "t", "(", "--regex"]) != ExitCode.OK
    assert "missing" in capfdbinary.readouterr().err.decode()


def test_bytes_that_are_no_text_are_searched_as_they_are_put(node, capfdbinary):
    node.put("t", b"a\xffb")
    assert lines(capfdbinary, "search", "t", "\udcff")[0].endswith("a\\xffb")
    assert run(["search", "t", "\udcff", "--regex"]) == ExitCode.USAGE
    assert "use a regular expression in UTF-8" in capfdbinary.readouterr().err.decode()


def test_connections_are_as_old_as_they_are_by_the_clock_of_their_node(
    tmp_path, monkeypatch, capfdbinary
):
    from poe import Node  # noqa: PLC0415 - as above

    clock = HybridClock(lambda: time_ns() - 10**9 * 86_400)
    with Node({"dir": tmp_path / "data", "port": 0}, clock=clock) as node, connect(node):
        assert node.address is not None
        monkeypatch.setenv("POE_URL", "poe://{}:{}".format(*node.address))
        shown = lines(capfdbinary, "connections")
    assert len(shown) == 2
    assert not any(" d ago" in line for line in shown)
