"""The dry run of mappings in the console: rules of anybody, which put nothing and run nothing."""

import json

import pytest

from poe.gateway.console.mappings import merged
from poe.protocol import socket as connect
from poe.protocol.pipeline_report import PipelineReport, QueryReport, RuleReport

RULES = """\
name = "trial"
source = {{ topics = ["{topic}"] }}
decode = "json"
otherwise = "drop"

[[rule]]
id = "large"
body = {{ amount = {{ gt = 100 }} }}
to = "{topic}.large"
"""


@pytest.fixture
def rules(console, topic):
    numbers = [json.dumps({"amount": each}).encode() for each in (5, 101, 500)]
    console.node.put_many(topic, numbers)
    return RULES.format(topic=topic)


def dry_run(console, rules, **given):
    return console.http.post("dry-run", json={"rules": rules, "ago_s": None, **given})


def test_it_tells_what_would_become_of_messages_and_puts_nothing(console, rules, topic):
    found = dry_run(console, rules).json()
    assert (found["messages"], found["topics"], found["order"]) == (3, [topic], ["large"])
    assert found["targets"] == {f"{topic}.large": 2}
    counts = {(each["rule"], each["action"]): each["messages"] for each in found["rules"]}
    assert counts == {("large", "to"): 2, ("otherwise", "drop"): 1}
    (first, _) = found["samples"][f"{topic}.large"]
    assert (first["before"], first["pointer"].isdecimal()) == ('{"amount": 101}', True)
    assert f"{topic}.large".encode() not in console.node.topics()


def test_it_looks_at_so_many_messages_and_says_that_there_are_more(console, rules):
    found = dry_run(console, rules, limit=1).json()
    assert (found["messages"], found["is_whole"]) == (1, False)


def test_a_topic_with_envelopes_is_judged_by_its_values(console, topic):
    console.node.create_topic(topic, envelope=True)
    console.http.post(f"messages/{topic}", json={"value": '{"amount": 101}', "key": "k"})
    found = dry_run(console, RULES.format(topic=topic)).json()
    assert found["targets"] == {f"{topic}.large": 1}


@pytest.mark.parametrize("named", ["os:system", "/etc/passwd.py:f", "../x.py:f"])
def test_no_function_is_called_or_even_looked_for(console, rules, named):
    reply = dry_run(console, rules.replace('to = "', f'call = "{named}"\n#'))
    assert reply.status_code == 422
    assert "none is called here" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("decode =", "decode = =", "rules.toml"),
        ('otherwise = "drop"', "", "otherwise"),
        ("amount =", "amount.x.y =", ""),
    ],
)
def test_wrong_rules_are_told(console, rules, old, new, told):
    reply = dry_run(console, rules.replace(old, new))
    assert reply.status_code in {200, 422}
    if told:
        assert told in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "given",
    [{"limit": 0}, {"limit": True}, {"limit": 10**9}, {"ago_s": -1}, {"ago_s": "x"}, {"x": 1}],
)
def test_wrong_parameters_are_told(console, rules, given):
    assert dry_run(console, rules, **given).status_code == 400
    assert console.http.post("dry-run", json={"rules": 5}).status_code == 400
    half = {"content": b'{"rules": "\\ud800"}', "headers": {"content-type": "application/json"}}
    assert console.http.post("dry-run", **half).status_code == 400


def test_rules_for_topics_that_are_not_there_find_nothing(console):
    found = dry_run(console, RULES.format(topic="nothing-here")).json()
    assert (found["messages"], found["topics"]) == (0, [])


def test_a_bomb_costs_its_process_alone(console, rules, topic):
    bomb = "[1,2,3,4,5,6,7,8,9,10]"
    maps = "".join(f".map(x{n}, {bomb}" for n in range(12)) + ")" * 12
    when = f"when = '''{bomb}{maps}.size() > 0'''\n"
    reply = dry_run(console, rules.replace("body =", f"{when}#"))
    assert reply.status_code in {200, 422}
    assert dry_run(console, rules).status_code == 200


def report(name, process, *rules, kind="mapping"):
    query = QueryReport(name="orders", state="running", rows_per_s=5.0, last_error="no room")
    about = {"host": "h", "pid": 1, "queries": (query,), "kind": kind, "rules": rules}
    return PipelineReport(name=f"{name} {process}", **about).as_map() | {"state": "running"}


def test_a_mapping_is_the_sum_of_its_processes():
    told = [
        report("m", "a:1", RuleReport(name="vip", what="to a", per_s=1.5, counts={"to": 5})),
        report(
            "m", "b:2", RuleReport(name="vip", what="to a", per_s=2, counts={"to": 1, "error": 1})
        ),
        report("other", "c:3", kind="pipeline"),
        {"name": "of another kind"},
    ]
    (row,) = merged(told)
    assert (row["name"], row["group"]["name"]) == ("m", "mapping.m")
    assert row["rules"] == [
        {"name": "vip", "what": "to a", "per_s": 3.5, "counts": {"to": 6, "error": 1}}
    ]
    assert [each["process"] for each in row["units"]] == ["a:1", "b:2"]
    assert row["units"][0]["error"] == "no room"


def test_mappings_that_report_are_told(console, topic):
    rule = RuleReport(name="vip", what="to a", counts={"to": 5})
    with connect("127.0.0.1", console.node.address[1]) as connection:
        connection.control("pipeline_report", report=report(topic, "h:1", rule))
    rows = {each["name"]: each for each in console.http.get("mappings").json()["rows"]}
    assert rows[topic]["rules"][0]["counts"] == {"to": 5}
    assert topic not in {each["name"] for each in console.http.get("pipelines").json()["rows"]}
