"""What a query tells of itself, as far as it needs no Spark."""

import json
import logging
from types import SimpleNamespace

import pytest

from poe.actors import LoopSystem
from poe.errors import AuthenticationFailed, NotAuthorized
from poe.protocol.pipeline_report import QueryReport
from poe.protocol.server import Server
from poe.spark import Pipeline
from poe.spark.pipeline import progress as progress_module
from poe.spark.pipeline import query
from poe.spark.pipeline.progress import BrokerLink, Known
from poe.spark.pipeline.query import lag_s
from poe.spark.pipeline.runner import PipelineSup
from poe.spark.reason import reason_of
from tests.waiting import wait_until


def progress(*sources):
    return {
        "sources": [
            {"endOffset": json.dumps(read), "latestOffset": json.dumps(newest)}
            for read, newest in sources
        ]
    }


def test_lag_is_the_time_between_the_newest_message_and_the_last_one_read():
    assert lag_s(progress(({"t": 1_000_000}, {"t": 3_500_000}))) == 2.5
    assert lag_s(progress(({"t": 5, "u": 0}, {"t": 5, "u": 2_000_000}))) == 2.0
    assert lag_s(progress(({"t": 5}, {"t": 5}), ({"u": 1}, {"u": 1_000_001}))) == 1.0
    assert lag_s(progress(({"t": 7}, {"t": 5}))) == 0.0


@pytest.mark.parametrize(
    "told",
    [{}, {"sources": []}, progress((5, None)), progress(({"a": {"b": 1}}, {"a": {"b": 2}}))],
)
def test_a_source_that_has_no_pointers_has_no_lag(told):
    assert lag_s(told) is None


TRACEBACK = """[STREAM_FAILED] Query [id = 1] has failed: Traceback (most recent call last):
  File "/lib/py4j/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "f.py", line 3, in broken
    raise ValueError("broken on purpose")
ValueError: broken on purpose
 SQLSTATE: 39000
"""


def test_of_a_function_that_failed_its_error_and_line_are_told():
    assert reason_of(RuntimeError(TRACEBACK)) == "ValueError: broken on purpose (f.py, line 3)"


def test_what_an_error_says_is_told_without_stacks_and_plans():
    error = ValueError("first line\n  second line\n\tat java.lang.Thread.run\n\tat more")
    assert reason_of(error) == "ValueError: first line second line"
    error = ValueError("[CODE] what\n'Project [a]\n+- more\n\nJVM stacktrace:\nmuch")
    assert reason_of(error) == "ValueError: [CODE] what"


class ScriptedSpark:
    """Starts queries that do what each one's entry of the script says; notes what happens."""

    def __init__(self, *script):
        self.script = list(script)
        self.notes = []

    def make_writer(self):
        return self

    def start(self):
        number = len([note for note in self.notes if note.startswith("start")]) + 1
        self.notes.append(f"start {number}")
        return ScriptedQuery(number, self.script.pop(0), self.notes)


class ScriptedQuery:
    """A query that goes on, is done, or cannot be reached."""

    lastProgress = None  # noqa: N815 - Spark's name

    def __init__(self, number, fate, notes):
        self.number, self.fate, self.notes = number, fate, notes

    @property
    def isActive(self):  # noqa: N802 - Spark's name
        if self.fate == "lost":
            nobody = "nobody there"
            raise ConnectionRefusedError(nobody)
        return self.fate != "done"

    def exception(self):
        return None

    def stop(self):
        self.notes.append(f"stop {self.number}")


@pytest.fixture
def supervise(monkeypatch):
    """Run a pipeline of one query; what it crashes with is not logged."""
    monkeypatch.setattr(logging.getLogger("poe"), "disabled", True)
    for name in ("poe.actors", "poe.supervision", "poe.spark"):
        monkeypatch.setattr(logging.getLogger(name), "disabled", True)
    monkeypatch.setattr(query, "LOOK_S", 0.01)
    systems = []

    def start(spark):
        pipeline = Pipeline("p", intensity=2, backoff_s=0.001)
        known = Known("p", {"q": QueryReport(name="q", state="starting")})
        system = LoopSystem()
        systems.append(system)
        link = BrokerLink(known, [Server("127.0.0.1", 1)])
        root = system.start(PipelineSup, pipeline, known, link, {"q": spark.make_writer})
        assert root is not None
        return known, lambda: system.stop(root, "shutdown")

    yield start
    for system in systems:
        system.shutdown()


def test_a_query_that_is_lost_is_stopped_before_the_next_one_uses_its_checkpoint(supervise):
    spark = ScriptedSpark("lost", "lost", "done")
    known, _ = supervise(spark)
    wait_until(lambda: known.queries["q"].is_ended, 20)
    assert (known.queries["q"].state, known.queries["q"].restarts) == ("done", 2)
    assert known.queries["q"].last_error == "ConnectionRefusedError: nobody there"
    assert spark.notes == ["start 1", "stop 1", "start 2", "stop 2", "start 3", "stop 3"]


def test_a_query_that_fails_once_too_often_is_given_up(supervise):
    known, _ = supervise(ScriptedSpark("lost", "lost", "lost", "done"))
    wait_until(lambda: known.queries["q"].is_ended, 20)
    assert (known.queries["q"].state, known.queries["q"].restarts) == ("failed", 2)


def test_a_query_that_goes_on_is_stopped_with_its_pipeline(supervise):
    spark = ScriptedSpark("active")
    known, stop = supervise(spark)
    wait_until(lambda: known.queries["q"].state == "running", 20)
    stop()
    assert known.queries["q"].state == "stopped"
    assert spark.notes == ["start 1", "stop 1"]


class RefusingServer:
    """Counts who connects, and lets nobody in."""

    def __init__(self, refusal):
        self.refusal = refusal
        self.count = 0

    def open_socket(self, server, timeout_s):
        self.count += 1
        raise self.refusal


@pytest.mark.parametrize(
    "refusal", [AuthenticationFailed(), NotAuthorized("admin", "the node")], ids=["in", "may"]
)
def test_a_server_that_refuses_reports_is_not_asked_each_second(monkeypatch, caplog, refusal):
    server, now_s = RefusingServer(refusal), 1000.0
    monkeypatch.setattr(progress_module, "open_socket", server.open_socket)
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    link = BrokerLink(Known("p", {}), [Server("127.0.0.1", 1)])
    for _ in range(600):
        link.tell()
        now_s += 1.0
    assert 10 < server.count < 30
    assert [each.levelname for each in caplog.records] == ["WARNING"]
