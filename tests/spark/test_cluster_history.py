"""Spark judges the history of a cluster as one process does, however large it is."""

import pytest

from tests.spark.large_history import chained, large_history, write
from tests.torture.test_cluster_rules import ALLOWED, BROKEN, SOUND
from torture.cluster_history import Event, History
from torture.cluster_rules import RULES
from torture.cluster_rules_spark import broken, main, read_history

pytestmark = pytest.mark.spark
EVENTS_COUNT = 10_000
IDLE = [Event(0, "start", "a", 1), Event(1, "kept", "a", 1, queue="idle", made=1)]
"""A queue without messages, of which something is kept."""


@pytest.fixture
def judged(spark, tmp_path):
    """Have Spark judge events, which lie in two files, as they came."""

    def judge(events):
        middle = len(events) // 2
        halves = events[:middle], events[middle:]
        paths = [write(tmp_path / f"h{place}", half) for place, half in enumerate(halves)]
        read = read_history(spark, paths)
        found = broken(read).collect()
        read.unpersist()
        assert len(found) == len(set(found))
        return {(row.rule, row.what) for row in found}

    return judge


def judged_plainly(events):
    """What one process says of them."""
    history = History(events)
    return {(name, what) for name, rule in RULES.items() for what in rule(history)}


def test_spark_finds_in_a_large_history_what_one_process_finds(judged):
    large = large_history(EVENTS_COUNT)
    broken_ones = [events for _, events in BROKEN.values()]
    events = chained([large, *broken_ones, *ALLOWED.values(), IDLE])
    found = judged(events)
    assert len(large) >= EVENTS_COUNT
    assert judged_plainly(large) == set()
    assert found == judged_plainly(events)
    assert {rule for rule, _ in found} == set(RULES)
    assert any("of idleh" in what for _, what in found)


def test_an_empty_history_breaks_no_rule(judged):
    assert judged([]) == set()


def test_a_cut_line_is_left_out_and_one_that_is_no_event_is_told(spark, tmp_path):
    path = write(tmp_path / "h", SOUND)
    with path.open("a") as file:
        file.write('{"at_us": 7, "ki')
    read = read_history(spark, [path])
    assert broken(read).collect() == []
    read.unpersist()
    with path.open("a") as file:
        file.write("\n" + SOUND[0].to_json() + "\n")
    with pytest.raises(ValueError, match=r'"ki is no event'):
        read_history(spark, [path])


def test_the_command_wants_files_that_are_there(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["/nowhere/h"])
    assert stopped.value.code == 2
    assert "there is no file /nowhere/h" in capsys.readouterr().err
