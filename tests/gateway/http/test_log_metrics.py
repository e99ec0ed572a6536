"""What the metrics of a gateway tell of replicated topics; of real ones: test_log_command.py."""

import re

from poe.gateway.http.log_metrics import LogMetrics
from poe.gateway.http.node_families import OTHERS, SHOWN_MAX
from tests.python_process import ROOT

ENGINE = {"version": "2.10", "leader": "n", "nodes": {"n": True, "m": False}, "bytes": 7}


def told(engine=ENGINE, topics=None, refused=None):
    """What is told, by name and labels but for the node."""
    answer = {"engine": engine, "topics": topics or {}, "refused": refused or {}}
    return {
        (each.name, *(value for label, value in each.labels.items() if label != "node")): each.value
        for family in LogMetrics("a", answer).collect()
        for each in family.samples
    }


def copy(state="following", waiting=0, applied=0):
    return {"state": state, "waiting": waiting, "applied": applied}


def test_an_engine_that_is_reached_is_told_with_its_nodes():
    found = told()
    assert found["poe_log_engine_up",] == found["poe_log_engine_has_leader",] == 1
    assert (found["poe_log_engine_nodes",], found["poe_log_engine_nodes_reached",]) == (2, 1)
    assert found["poe_log_engine_bytes",] == 7


def test_one_that_is_not_reached_is_told_as_that():
    found = told({"version": "", "leader": "", "nodes": {}, "bytes": 0, "why": "gone"})
    assert found["poe_log_engine_up",] == found["poe_log_engine_has_leader",] == 0


def test_copies_are_counted_by_their_states():
    topics = {b"a": copy(), b"b": copy("cut off"), b"c": copy("cut off")}
    found = told(topics=topics, refused={b"d": "there is another one"})
    states = {key[1]: value for key, value in found.items() if key[0] == "poe_log_copies"}
    assert states == {
        "following": 1,
        "stalled": 0,
        "fetching": 0,
        "cut off": 2,
        "busy": 0,
        "refused": 1,
    }


def test_partitions_beyond_the_first_ones_are_told_together():
    topics = {b"t%03d" % n: copy(waiting=n, applied=2 * n) for n in range(SHOWN_MAX + 2)}
    found = told(topics=topics)
    assert found["poe_log_puts_waiting", "t003"] == 3
    assert found["poe_log_entries_stored_total", "t003"] == 6
    assert found["poe_log_puts_waiting", OTHERS] == SHOWN_MAX + SHOWN_MAX + 1
    assert len(found) == 5 + 6 + 2 * (SHOWN_MAX + 1)


def test_every_metric_that_rules_ask_for_is_told():
    asked = set(re.findall(r"poe_log_\w+", (ROOT / "deploy/prometheus/rules.yml").read_text()))
    assert asked
    assert asked <= {key[0] for key in told()}
