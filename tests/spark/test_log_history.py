"""Spark judges the history of replicated topics as one process does, however large it is."""

import pytest

from tests.spark.large_history import again, large_log_history
from tests.torture.test_log_rules import ALLOWED, BROKEN
from torture import cluster_rules_spark, log_rules_spark
from torture.log_history import from_rows, write_rows
from torture.log_rules import RULES
from torture.log_rules_spark import OF_CLIENTS, OF_PLACES, OF_ROWS, broken, main, read_history

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
EVENTS_COUNT = 5_000
OF_A_PART = {"unequal", "taken back"}
"""Rules whose sentences tell of the part that was judged."""


@pytest.fixture
def judged(spark, tmp_path, monkeypatch):
    """Have Spark judge rows, which lie in two files, a topic in parts of some hundred records."""
    monkeypatch.setattr(log_rules_spark, "PART_COUNT", 300)

    def judge(rows):
        middle = len(rows) // 2
        paths = [tmp_path / "h0", tmp_path / "h1"]
        write_rows(paths[0], rows[:middle])
        write_rows(paths[1], rows[middle:])
        read = read_history(spark, paths)
        found = broken(read).collect()
        read.unpersist()
        assert len(found) == len(set(found))
        return {(row.rule, row.what) for row in found}

    return judge


def judged_plainly(rows):
    """What one process says of them."""
    history = from_rows(rows).judged()
    return {(name, what) for name, rule in RULES.items() for what in rule(history)}


def alike(found):
    """What is said in the same words: of some rules that they are broken, and of which topics."""
    return {(rule, what.partition(" ")[0] if rule in OF_A_PART else what) for rule, what in found}


def damage(rows):
    """Change one message, which one copy holds amid all others."""
    held = [row for row in rows if row["kind"] == "held"]
    records = held[len(held) // 2]["records"]
    records[len(records) // 2]["message"] = "damaged"


def test_each_rule_is_judged():
    assert sorted((*OF_CLIENTS, *OF_PLACES, *OF_ROWS)) == sorted(RULES)


def test_spark_finds_in_a_large_history_what_one_process_finds(judged):
    large = list(large_log_history(EVENTS_COUNT))
    assert judged_plainly(large) == set()
    damage(large)
    assert {rule for rule, _ in judged_plainly(large)} >= {"two values", "unequal", "invented"}
    others = [*(history for _, history in BROKEN.values()), *ALLOWED.values()]
    rows = [*large, *(row for n, each in enumerate(others) for row in again(each, f"b{n}", 0))]
    found = judged(rows)
    assert {rule for rule, _ in found} == set(RULES)
    assert alike(found) == alike(judged_plainly(rows))


def test_the_command_says_what_is_broken(spark, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cluster_rules_spark, "session", lambda *_, **__: spark)
    for name, history, code in (
        ("sound", ALLOWED["all is well"], 0),
        ("twice", BROKEN["twice"][1], 1),
    ):
        write_rows(tmp_path / name, again(history, "", 0))
        assert main([str(tmp_path / name)]) == code
    assert "halved or twice: put 2 of p" in capsys.readouterr().out
    (tmp_path / "none").write_text("{\n")
    for path in ("none", "nowhere"):
        with pytest.raises(SystemExit) as stopped:
            main([str(tmp_path / path)])
        assert stopped.value.code == 2
