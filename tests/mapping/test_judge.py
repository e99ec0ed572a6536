"""What becomes of messages that rules leave over, as values."""

from dataclasses import replace

import pytest

from poe.mapping import Columns, Drop, RuleSet
from poe.mapping.judge import Judge, due_s, run_of
from poe.mapping.rule import Call, OnError, Route, Rule, Source
from poe.mapping.unit import Held

NOW_US = 1_700_000_000_000_000
TOPIC = b"orders"


def fail(message):
    if b"bad" in message.value:
        raise ValueError(message.pointer)
    return message


def rules(**options):
    call = Call(function=fail, name="f.py:fail", pure=True, route=Route(to=("out",)))
    base = RuleSet(
        name="m",
        source=Source(topics=("orders",)),
        otherwise=Drop("none"),
        decode="bytes",
        rules=(Rule(id="call", fate=call),),
    )
    return replace(base, **options)


def judge(**options):
    return Judge(rules(**options).compile(), lambda: NOW_US)


def batch(*values, topic=TOPIC, headers=None):
    return Columns(topic, list(range(1, len(values) + 1)), list(values), None, headers)


def test_a_message_that_fails_is_a_dead_letter_that_tells_all_that_is_known():
    judged = judge().judge(batch(b"a", b"bad", b"c"))
    assert judged.held is None
    assert judged.decided.puts[b"out"].values == [b"a", b"c"]
    letter = judged.decided.puts[b"m.dead"]
    assert letter.values == [b"bad"]
    assert letter.places == [1]
    assert letter.headers == [
        {
            "poe.topic": TOPIC,
            "poe.pointer": b"2",
            "poe.attempts": b"1",
            "poe.reason": b"f.py:fail: ValueError: 2, line 18 of test_judge.py",
            "poe.rule": b"call",
            "poe.mapping": b"m",
            "poe.time_us": b"%d" % NOW_US,
        }
    ]


@pytest.mark.parametrize("then", ["drop", "ok"])
def test_what_is_not_to_be_kept_is_nowhere(then):
    judged = judge(on_error=OnError(then=then)).judge(batch(b"a", b"bad"))
    assert set(judged.decided.puts) == {b"out"}
    assert judge(on_error=OnError(then=then)).give_up(batch(b"bad"), "call", "", 3).counts == {
        ("call", then): 1
    }


def test_with_then_stop_a_failure_holds_all_behind_it():
    held = judge(on_error=OnError(then="stop")).judge(batch(b"a", b"bad")).held
    assert held is not None
    assert (held.place, held.kind) == (1, "stop")


@pytest.mark.parametrize(
    ("isolation", "place", "error"),
    [
        ("thread", "threading.Thread.start", RuntimeError("can't start new thread")),
        ("process", "subprocess.Popen", BlockingIOError("Resource temporarily unavailable")),
    ],
)
def test_where_the_machine_has_no_thread_or_process_for_functions_it_waits(
    monkeypatch, isolation, place, error
):
    """Each message was a dead letter, for as long as that took."""

    def refuse(*_, **__):
        raise error

    call = Call(function=fail, name="fail", isolation=isolation)
    made = judge(rules=(Rule(id="r", fate=call),))
    monkeypatch.setattr(place, refuse)
    held = made.judge(batch(b"1", b"2")).held
    assert held is not None
    assert (held.place, held.kind) == (0, "stop")
    assert f"no {isolation} can be started" in held.reason
    assert str(error) in held.reason


def test_ordered_retries_hold_the_partition_as_often_as_the_file_says():
    held = judge(on_error=OnError(retry=5)).judge(batch(b"a", b"bad", b"bad")).held
    assert held is not None
    assert (held.place, held.kind, held.attempts_max) == (1, "retry", 6)


@pytest.mark.parametrize("retries", ["ordered", "unordered"])
def test_what_cannot_be_decoded_is_not_tried_again(retries):
    rule = Rule(id="all", fate=Route(to=("out",)), body={"type": "order"})
    options = {"decode": "json", "rules": (rule,), "retries": retries}
    values = [b'{"type": "order"}', b"{", b'{"type": "order"}']
    judged = judge(on_error=OnError(retry=5), **options).judge(batch(*values))
    assert judged.held is None
    assert judged.decided.puts[b"out"].places == [0, 2]
    assert judged.decided.puts[b"m.dead"].places == [1]
    assert judged.decided.puts[b"m.dead"].headers[0]["poe.rule"] == b"decode"
    held = judge(on_error=OnError(retry=5, then="stop"), **options).judge(batch(*values)).held
    assert (held is None) == (retries == "unordered")  # the file may say "bytes" next time


def test_pauses_double_up_to_the_most():
    pause_s = judge(on_error=OnError(backoff_s=(1, 60))).pause_s
    held = Held(0, "retry", "rule", "why")
    assert [pause_s(held, attempts) for attempts in (1, 2, 3, 7, 1000)] == [1, 2, 4, 60, 60]
    assert pause_s(held._replace(after_s=7), 3) == 7


def test_unordered_retries_wait_on_a_topic_of_their_own_and_come_back_as_they_were():
    judging = judge(on_error=OnError(retry=1, backoff_s=(2, 60)), retries="unordered")
    judged = judging.judge(batch(b"a", b"bad"))
    assert judged.held is None
    assert judged.decided.puts[b"out"].values == [b"a"]
    waiting = judged.decided.puts[b"m.retry"]
    assert waiting.headers is not None
    assert due_s(waiting.headers[0], NOW_US) == 2
    again = Columns(b"m.retry", [77], waiting.values, None, waiting.headers)
    letter = judging.judge(again).decided.puts[b"m.dead"]
    assert letter.headers is not None
    assert letter.headers[0] is not None
    told = letter.headers[0]
    assert (told["poe.topic"], told["poe.pointer"]) == (TOPIC, b"2")
    assert told["poe.attempts"] == b"2"


@pytest.mark.parametrize(
    ("keys", "headers", "is_told"),
    [
        (None, None, False),
        ([b"k"], [None], True),
        ([None], [{"a": b"b"}], True),
        ([None], [{"poe-origin": b"web/7", "poe-hops": b"1"}], True),
    ],
    ids=["plain", "with a key", "with a header", "of another mapping"],
)
def test_a_letter_of_what_has_waited_tells_of_an_envelope_only_where_it_came_in_one(
    keys, headers, is_told
):
    judging = judge(on_error=OnError(retry=1), retries="unordered")
    judged = judging.judge(Columns(TOPIC, [2], [b"bad"], keys, headers))
    waiting = judged.decided.puts[b"m.retry"]
    # As it is read from a topic with envelopes: each has a key, or none, and headers.
    again = Columns(b"m.retry", [77], waiting.values, waiting.keys or [None], waiting.headers)
    letters = [
        judging.judge(again).decided.puts[b"m.dead"],
        judging.give_up(again, "call", "why", 2).decided.puts[b"m.dead"],
    ]
    told = [each.headers[0] for each in letters if each.headers]
    assert [each is not None and "poe.envelope" in each for each in told] == [is_told] * 2


@pytest.mark.parametrize(("retries", "pointer"), [("ordered", b"2"), ("unordered", b"0")])
def test_a_dead_letter_tells_where_it_was_whatever_others_say_that_it_came_from(retries, pointer):
    """Another mapping, or whoever has put it: it is put back where this mapping has read it."""
    judging = judge(on_error=OnError(retry=1), retries=retries)
    came = [{"poe-origin": b"payroll/7"}] * 2
    judged = judging.judge(batch(b"a", b"bad", headers=came))
    if retries == "unordered":
        waiting = judged.decided.puts[b"m.retry"]
        again = Columns(b"m.retry", [77], waiting.values, None, waiting.headers)
        letter = judging.judge(again).decided.puts[b"m.dead"]
    else:
        given_up = Columns(TOPIC, [2], [b"bad"], None, came[:1])
        letter = judging.give_up(given_up, "call", "why", 2).decided.puts[b"m.dead"]
    assert letter.headers is not None
    told = letter.headers[0]
    assert told is not None
    assert (told["poe.topic"], told["poe.pointer"]) == (TOPIC, pointer)


@pytest.mark.parametrize("digits", [b"9" * 5000, b"-1", b"", b"1e9", "²".encode()])
def test_numbers_that_somebody_else_has_written_onto_the_retry_topic_are_none(digits):
    forged = {"poe-retry-topic": TOPIC, "poe-retry-due": digits, "poe-retry-attempts": digits}
    assert due_s(forged, NOW_US) < 0
    judged = judge(on_error=OnError(retry=1), retries="unordered").judge(
        batch(b"bad", topic=b"m.retry", headers=[forged])
    )
    assert judged.decided.puts[b"m.retry"].places == [0]


def test_messages_of_the_retry_topic_are_taken_in_runs_of_one_topic():
    headers = [{"poe-retry-topic": name} for name in (b"a", b"a", b"b", b"a")]
    assert run_of(batch(b"1", b"2", b"3", b"4", topic=b"m.retry", headers=headers)) == 2


def test_a_message_that_ended_processes_is_dead_whatever_the_file_says_of_errors():
    judged = judge(on_error=OnError(then="ok")).give_up(batch(b"a"), "", "5 processes", 5)
    assert set(judged.decided.puts) == {b"m.dead"}


@pytest.mark.parametrize("retries", ["ordered", "unordered"])
def test_a_letter_that_is_dead_again_stays_where_it_is(retries):
    """A mapping that may go in circles would read its copy next, and put another one, for ever."""
    judging = judge(loop=True, retries=retries, on_error=OnError(retry=retries == "unordered"))
    judged = judging.judge(batch(b"a", b"bad", topic=b"m.dead"))
    if retries == "unordered":
        waiting = judged.decided.puts[b"m.retry"]
        again = Columns(b"m.retry", [77], waiting.values, None, waiting.headers)
        judged = judging.judge(again)
    assert b"m.dead" not in judged.decided.puts
    given_up = judging.give_up(batch(b"bad", topic=b"m.dead"), "", "why", 1)
    assert not given_up.decided.puts
    assert given_up.counts == {("", "dead"): 1}


def test_pieces_are_decided_as_the_whole_is():
    values = [b"bad %d" % number if number % 97 == 0 else b"%d" % number for number in range(5000)]
    compiled = rules().compile()
    whole = compiled.decide(batch(*values))
    judged = Judge(compiled, lambda: NOW_US).judge(batch(*values))
    out = judged.decided.puts[b"out"]
    assert out.values == list(whole.puts[b"out"].values)
    assert list(out.places) == list(whole.puts[b"out"].places)
    assert judged.decided.puts[b"m.dead"].places == [each.place for each in whole.failed]
    assert judged.counts == whole.counts
