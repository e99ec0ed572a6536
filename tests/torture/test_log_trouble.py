"""The simulated clients of replicated topics take for done only what surely is."""

import math

import pytest

from torture.faults.log import _FLEETING, _Trouble
from torture.log_rules import broken
from torture.scenario import Run, Trial
from torture.table import SCENARIOS


@pytest.fixture
def trouble(tmp_path):
    """Nodes with topics, whom nothing has befallen yet."""
    trouble = _Trouble(Trial(Run(SCENARIOS["log"], 1, 1, "ci", tmp_path), 0))
    trouble.begin_topics()
    return trouble


def delete_at(trouble, name, monkeypatch):
    """Have a client ask one node for that."""
    monkeypatch.setattr(trouble, "any_node", lambda: trouble.cluster.nodes[name])
    trouble.delete()
    trouble.cluster.nodes[name].move_to(trouble.cluster.now_s)  # it asks its engine


def put_at(trouble, name):
    """Have a client put onto what is deleted, and return that."""
    producer = next(each for each in trouble.producers if each.topic == _FLEETING)
    trouble.begin_put(producer)
    trouble.put_again(producer, trouble.cluster.nodes[name])
    trouble.cluster.advance(1.0)
    return trouble.history.puts[-1]


def test_a_delete_whose_node_ends_may_be_done_later(trouble, monkeypatch):
    trouble.log.pause("a")
    delete_at(trouble, "a", monkeypatch)
    trouble.cluster.nodes["a"].leave()
    trouble.cluster.advance(1.0)
    put = put_at(trouble, "b")
    assert put.acked
    trouble.log.resume("a")
    trouble.end()
    assert [
        each for each in trouble.history.copies if each.topic == _FLEETING and each.records
    ] == []
    assert broken(trouble.history) == []


def test_a_delete_that_was_answered_is_done(trouble, monkeypatch):
    delete_at(trouble, "a", monkeypatch)
    trouble.cluster.advance(1.0)
    delete_at(trouble, "b", monkeypatch)  # which says that there is none
    trouble.cluster.advance(1.0)
    assert all(each.ended_us < math.inf for each in trouble.history.deletes)
    assert len(trouble.history.deletes) == 2
