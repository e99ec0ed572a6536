"""Metrics of the node behind a gateway: names, bounded labels, and sums that never fall."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from poe.gateway.http.node_families import OTHERS
from poe.gateway.http.node_metrics import TOPICS_SHOWN_MAX, NodeMetrics, TopicLabels


def row(count, refused=None):
    numbers = dict.fromkeys(("messages_in", "bytes_in", "messages_out", "bytes_out"), count)
    return {**numbers, "refused": refused or {}}


def text_of(told, labels=None):
    registry = CollectorRegistry(support_collectors_without_names=True)
    registry.register(NodeMetrics(told, labels or TopicLabels()))
    return generate_latest(registry).decode()


def test_a_node_that_does_not_answer_is_told_as_such():
    assert "poe_node_up 0.0" in text_of(None)


def test_a_node_that_does_not_tell_of_itself_tells_of_topics():
    text = text_of({"node": {}, "topics": {b"a": row(3, {"InvalidMessage": 2})}})
    assert "poe_node_up 1.0" in text
    assert 'poe_topic_messages_in_total{topic="a"} 3.0' in text
    assert 'poe_node_requests_refused_total{error="InvalidMessage"} 2.0' in text
    assert "poe_node_connections" not in text


def test_hostile_names_are_labels_and_nothing_else():
    text = text_of({"node": {}, "topics": {b'a"}\n# HELP x\xff': row(1)}})
    assert sum(each.startswith("poe_topic_messages_in_total{") for each in text.splitlines()) == 1


def test_the_busiest_have_labels_of_their_own_and_keep_them():
    labels = TopicLabels()
    topics = {b"%03d" % number: row(number) for number in range(TOPICS_SHOWN_MAX + 50)}
    shown = labels.rows(topics, 1)
    assert len(shown) == TOPICS_SHOWN_MAX + 1
    assert "149" in shown
    assert "049" not in shown
    assert shown[OTHERS]["messages_in"] == sum(range(50))
    topics[b"000"] = row(10_000)
    again = labels.rows(topics, 1)
    assert again.keys() == shown.keys()
    assert again[OTHERS]["messages_in"] == 10_000 + sum(range(50))


def test_a_node_that_starts_anew_counts_from_zero():
    labels = TopicLabels()
    topics = {b"%03d" % number: row(5) for number in range(TOPICS_SHOWN_MAX + 1)}
    assert labels.rows(topics, 1)[OTHERS]["messages_in"] == 5
    assert labels.rows({}, 1)[OTHERS]["messages_in"] == 5
    assert labels.rows({}, 2) == {}


def test_what_was_refused_does_not_become_less_when_a_topic_is_deleted_or_made_anew():
    labels = TopicLabels()
    steps = [(5, 2), (5, None), (6, 1)]
    for (there, gone), total in zip(steps, (7, 7, 9), strict=True):
        topics = {b"there": row(1, {"InvalidMessage": there})}
        if gone is not None:
            topics[b"gone"] = row(1, {"InvalidMessage": gone})
        text = text_of({"node": {}, "topics": topics}, labels)
        assert f'poe_node_requests_refused_total{{error="InvalidMessage"}} {total}.0' in text


def test_others_do_not_become_less_when_one_of_them_is_made_anew_between_two_looks():
    labels = TopicLabels()
    topics = {b"%03d" % number: row(5) for number in range(TOPICS_SHOWN_MAX + 2)}
    (other, _) = sorted(topics.keys() - {each.encode() for each in labels.rows(topics, 1)})
    topics[other] = row(1)
    assert labels.rows(topics, 1)[OTHERS]["messages_in"] == 11


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.integers(0, 150).map(b"%d".__mod__), st.integers(0, 3))))
def test_no_sum_falls_while_its_label_is_there(steps):
    labels = TopicLabels()
    counts: dict[bytes, int] = {}
    before: dict[str, int] = {}
    for step in steps:
        for name, more in step.items():
            if more == 0:
                counts.pop(name, None)  # deleted
            else:
                counts[name] = counts.get(name, 0) + more
        shown = labels.rows({name: row(count) for name, count in counts.items()}, 1)
        assert len(shown) <= TOPICS_SHOWN_MAX + 1
        assert before.get(OTHERS, 0) <= shown.get(OTHERS, row(0))["messages_in"]
        before = {name: each["messages_in"] for name, each in shown.items()}
