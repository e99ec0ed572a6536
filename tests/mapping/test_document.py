"""Files of mappings: what is wrong in one is told with its line, and how to mend it."""

import random
import tomllib
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import InvalidMapping
from poe.mapping import Mapping, P, checks, load
from poe.mapping.action import Dead, Drop, Ok, Retry, Stop, To
from poe.mapping.document import load_text
from poe.mapping.rule import Call, OnError, Route

HEAD = """\
name = "orders"
source = { topics = ["orders", "web.*"] }
otherwise = "dead"
"""

COMPLETE = """\
name    = "orders"
source  = { topics = ["orders", "web.*"] }
start   = "newest"
decode  = "json"
undecodable = "otherwise"
otherwise = { to = "rest" }
on_error  = { retry = 5, backoff_s = [1, 60], then = "drop" }
match   = "all"
retries = "unordered"
hops_max = 4

[[rule]]
id = "vip"
body = { type = "order", amount = { gt = 100 }, user = { country = ["DE", "FR"] } }
header = { trace = { prefix = "ab" } }
to = ["orders.vip", "audit"]

[[rule]]
id = "eu"
key_is = { prefix = "eu" }
to = "eu.{body.user.country}"
key = "{body.user.id}"
topics = ["eu.*"]
topics_max = 30

[[rule]]
id = "done"
topic = "web.clicks"
body.state = "done"
ok = true

[[rule]]
id = "junk"
body.junk.exists = true
drop = "test traffic"

[[rule]]
id = "bad"
body.bad.exists = true
dead = "bad"

[[rule]]
id = "later"
body.later.exists = true
retry = 5

[[rule]]
id = "away"
body.away.exists = true
stop = "the target is away"

[[test]]
in = { topic = "orders", key = "eu1", body = { user = { country = "DE", id = 7 } } }
expect = { rule = "eu", to = ["eu.DE"], key = "7" }
"""


def written(folder, text, name="m.toml"):
    path = folder / name
    path.write_text(text)
    return path


def test_all_words_are_read(tmp_path):
    rules = load(written(tmp_path, COMPLETE))
    assert (rules.start, rules.match, rules.undecodable) == ("newest", "all", "otherwise")
    assert rules.on_error == OnError(retry=5, backoff_s=(1, 60), then="drop")
    assert rules.otherwise == Route(to=("rest",))
    assert [each.fate for each in rules.rules][2:] == [
        Ok(),
        Drop("test traffic"),
        Dead("bad"),
        Retry(5),
        Stop("the target is away"),
    ]
    assert rules.rules[1].place == f"{tmp_path}/m.toml, line 18"
    assert rules.dead_topic == b"orders.dead"


def test_the_same_in_python_is_equal(tmp_path):
    mapping = Mapping(
        "orders",
        source={"topics": ("orders", "web.*")},
        start="newest",
        decode="json",
        undecodable="otherwise",
        otherwise={"to": "rest"},
        on_error={"retry": 5, "backoff_s": (1, 60), "then": "drop"},
        match="all",
        retries="unordered",
        hops_max=4,
    )
    mapping.rule(
        "vip",
        body={"type": "order", "amount": P > 100, "user": {"country": ["DE", "FR"]}},
        header={"trace": P.prefix("ab")},
        to=["orders.vip", "audit"],
    )
    mapping.rule(
        "eu",
        key_is=P.prefix("eu"),
        to="eu.{body.user.country}",
        key="{body.user.id}",
        topics=["eu.*"],
        topics_max=30,
    )
    mapping.rule("done", topic="web.clicks", body={"state": "done"}, ok=True)
    mapping.rule("junk", body={"junk": P.exists}, drop="test traffic")
    mapping.rule("bad", body={"bad": P.exists}, dead="bad")
    mapping.rule("later", body={"later": P.exists}, retry=5)
    mapping.rule("away", body={"away": P.exists}, stop="the target is away")
    mapping.test(
        {"topic": "orders", "key": "eu1", "body": {"user": {"country": "DE", "id": 7}}},
        {"rule": "eu", "to": ["eu.DE"], "key": "7"},
    )
    rules = mapping.rule_set()
    read = load(written(tmp_path, COMPLETE))
    assert rules == read
    assert rules.compile().hash == read.compile().hash


FUNCTIONS = """\
from poe.mapping import Mapping, P, To

mapping = Mapping("m", source={"topics": "t"}, otherwise="drop")


@mapping.rule(body={"n": (P >= 1) & (P < 9), "x": ~P.is_in(1, 2)}, pure=True)
def enrich(message):
    return To("out", message)
"""
CALLING = """\
name = "m"
source = { topics = ["t"] }
otherwise = "drop"
[[rule]]
id = "enrich"
body = { n = { ge = 1, lt = 9 }, x = { not = { in = [1, 2] } } }
call = "m.py:enrich"
pure = true
"""


def test_a_decorated_function_is_a_rule_that_calls_it(tmp_path):
    python = load(written(tmp_path, FUNCTIONS, "m.py"))
    toml = load(written(tmp_path, CALLING))
    assert python == toml
    [call] = [rule.fate for rule in python.rules]
    assert isinstance(call, Call)
    assert call.pure
    assert call.function.__name__ == "enrich"
    assert To("out") == To(["out"])


def rule(text):
    return f'{HEAD}[[rule]]\nid = "a"\n{text}\n'


def beside(text):
    expect = "" if "expect" in text else "\nexpect = {}"
    return rule(f"ok = true\n[[test]]\n{text}{expect}")


BROKEN = {
    "no TOML": (HEAD + "[[rule", 4, "is no TOML"),
    "unknown word": (HEAD + "sources = 1", 4, "'sources' is not known; use name, source"),
    "unknown word of a rule": (rule('bodi = {}\nto = "x"'), 6, "'bodi' is not known"),
    "no otherwise": ('name = "x"\nsource = { topics = ["a"] }', None, "'otherwise' is missing"),
    "no source": ('name = "x"\notherwise = "ok"', None, "'source' is missing"),
    "otherwise": (HEAD.replace("dead", "stop"), 3, "otherwise: is 'stop'; use 'drop', 'ok'"),
    "no topics": (HEAD.replace('["orders", "web.*"]', "[]"), 2, "use names of topics"),
    "name": (HEAD.replace('"orders"\n', '"or ders"\n'), 1, "name: is 'or ders'"),
    "match": (HEAD + 'match = "some"', 4, "match: is 'some'; use first or all"),
    "decode": (HEAD + 'decode = "xml"', 4, "use json or msgpack or text or bytes"),
    "on_error": (HEAD + "on_error.retry = -1", 4, "on_error.retry: is -1; use 0 to"),
    "backoff": (HEAD + "on_error = { backoff_s = [9, 1] }", 4, "first and the longest wait"),
    "hops": (HEAD + "hops_max = 0", 4, "use 1 to 1000"),
    "no id": (HEAD + '[[rule]]\nto = "x"', 4, "rule 1: a rule has no id"),
    "no fate": (rule("body = {}"), 4, "rule 'a': says not what to do; use one of to, call"),
    "two fates": (rule('to = "x"\nok = true'), 4, "has to and ok; use one of"),
    "ok": (rule("ok = false"), 6, "use ok = true"),
    "drop": (rule("drop = 5"), 6, "use true, or a text that says why"),
    "retry": (rule("retry = -5"), 6, "use seconds"),
    "key without to": (rule('ok = true\nkey = "k"'), 7, "'key' is of rules with 'to'"),
    "pure without call": (rule("ok = true\npure = true"), 7, "'pure' is of rules with 'call'"),
    "operator": (rule("ok = true\nbody.x.gt = true"), 7, "body.x.gt: is True; use a number"),
    "mixed": (rule("ok = true\nbody = { x = { gt = 1, size = 2 } }"), 7, "'size' is none"),
    "date": (rule("ok = true\nbody.x = 2026-01-01"), 7, "use a text, a number"),
    "regex": (rule('ok = true\n\nbody.x.regex = "("'), 8, "missing )"),
    "lookahead": (rule('ok = true\nbody.x.regex = "(?=a)"'), 7, "invalid perl operator"),
    "header": (rule("ok = true\nheader = { x = 5 }"), 7, "header.x: is 5; use a text"),
    "when": (rule('ok = true\nwhen = "body.x =="'), 7, "when: at character 10: Syntax error"),
    "when, name": (rule('ok = true\nwhen = "bodi.x"'), 7, "undeclared reference to 'bodi"),
    "when, type": (rule('ok = true\nwhen = "topic"'), 7, "is of type string"),
    "when, lines": (
        rule("ok = true\nwhen = '''body.x\n ++ 1'''"),
        7,
        "at line 2, character 3: Syntax error",
    ),
    "gap": (rule('to = "x.{user}"'), 6, "has the gap {user}; use {topic}, {key}"),
    "braces": (rule('to = "x.{body.y"'), 6, "braces do not match"),
    "topic's name": (rule('to = "x/y"'), 6, "'x/y' cannot be the name of a topic"),
    "topic of the node": (
        rule('to = "poe.groups"'),
        6,
        "'poe.groups' cannot be the name of a topic",
    ),
    "no function": (rule('call = "nothing"'), 6, "'nothing': names no function"),
    "no file": (rule('call = "none.py:f"'), 6, "cannot be read: No such file"),
    "no module": (rule('call = "none_such:f"'), 6, "cannot be imported: No module named"),
    "broken module": (rule('call = ".clicks:f"'), 6, "cannot be imported: TypeError: "),
    "process": (
        rule('call = "time:sleep"\nisolation = "process"'),
        7,
        "isolation: is 'process'; use it for functions that a file has by their own names",
    ),
    "two of a name": (rule('ok = true\n[[rule]]\nid = "a"\nok = true'), 8, "is used twice"),
    "circle": (rule('to = "orders"'), 6, "goes in a circle: a -> a"),
    "circle by template": (rule('to = "web.{body.x}"'), 6, "goes in a circle"),
    "dead letters": (HEAD.replace("web.*", "*.dead"), 2, "where dead letters of the mapping go"),
    "test, unknown": (rule("ok = true\n[[test]]\nin = {body = 1}\nexpect = {rul = 'a'}"), 9, "rul"),
    "test, rule": (
        rule("ok = true\n[[test]]\nin = {body = 1}\nexpect = {rule = 'b'}"),
        9,
        "use one of a, otherwise",
    ),
    "test, no body": (rule("ok = true\n[[test]]\nin = {}\nexpect = {}"), 8, "use either body"),
    "test, topic": (beside("in = {body = 1, topic = 5}"), 8, "test 1: in.topic: is 5; use a text"),
    "test, header": (beside("in = {body = 1, header = 'x'}"), 8, "in.header: is 'x'; use a table"),
    "test, pointer": (beside("in = {body = 1, pointer = -1}"), 8, "in.pointer: is -1; use 0 to"),
    "test, pattern": (
        beside("in = {body = 1}\nexpect = {body = {x = {gt = true}}}"),
        9,
        "test 1: expect.body.x.gt: is True; use a number or a text",
    ),
    "apostrophe": (
        rule("ok = true\nbody.x.gt = true").replace('"a"', '"it\'s"'),
        7,
        '"it\'s": body.x',
    ),
    "backslash": (
        rule("ok = true\nbody.x.gt = true").replace('"a"', "'a\\b'"),
        7,
        "body.x.gt: is True",
    ),
    "superscript": (rule("ok = true\nbody.'²'.gt = true"), 7, "body.².gt: is True"),
    "nested": (rule(f"ok = true\nbody.{'.'.join('a' * 40)} = 1"), 7, "nested more than 32 deep"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_told_with_line_and_cure(case, tmp_path):
    text, line, told = BROKEN[case]
    path = written(tmp_path, text)
    with pytest.raises(InvalidMapping) as error:
        load(path)
    where = str(path) if line is None else f"{path}, line {line}"
    assert str(error.value).startswith(f"{where}: ")
    assert told in str(error.value)


WRONG_RULE = """\
from poe.mapping import Mapping
m = Mapping("m", source={"topics": "t"}, otherwise="drop")
m.rule("a", body={"x": 1}, to="a b")
"""


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("f = (", "line 1: is no Python: '(' was never closed"),
        ("x = 1\nraise ValueError('no')", "line 2: ValueError: no"),
        ("x = 1", "holds 0 mappings"),
        ("import sys\nsys.exit(3)", "line 2: SystemExit: 3"),
        ("x = 1\nopen('/nothing')", "line 2: FileNotFoundError: [Errno 2] No such file"),
        ("x = 1\nexec('f = (')", "line 2: SyntaxError: '(' was never closed"),
        (
            WRONG_RULE,
            "rule 'a': to: 'a b' cannot be the name of a topic",
        ),
    ],
    ids=["syntax", "error", "none", "exit", "file", "other syntax", "rule"],
)
def test_what_is_wrong_in_a_python_file_is_told(content, told, tmp_path):
    with pytest.raises(InvalidMapping) as error:
        load(written(tmp_path, content, "m.py"))
    assert told in str(error.value)


def test_what_is_no_file_is_told(tmp_path):
    with pytest.raises(InvalidMapping, match="cannot be read: No such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(InvalidMapping, match=r"use a file \.toml or \.py"):
        load(tmp_path / "m.yaml")
    path = tmp_path / "m.toml"
    path.write_bytes(b'name = "x"\nx = "\xff"')
    with pytest.raises(InvalidMapping, match="line 2: is no UTF-8"):
        load(path)


def test_a_function_that_no_file_holds_is_called_as_others(tmp_path):
    [rule_of_time] = load(written(tmp_path, rule('call = "time:sleep"'))).rules
    assert isinstance(rule_of_time.fate, Call)


NO_NAME = """\
from poe.mapping import Mapping
m = Mapping("m", source={"topics": "t"}, otherwise="drop")
m.rule("a", call=lambda message: None, isolation="process")
"""


def test_a_function_that_its_process_would_not_find_is_refused(tmp_path):
    with pytest.raises(InvalidMapping, match="rule 'a': isolation: is 'process'; use it for"):
        load(written(tmp_path, NO_NAME, "m.py"))


def test_a_circle_may_be_wanted(tmp_path):
    assert load(written(tmp_path, "loop = true\n" + rule('to = "orders"'))).loop


def test_what_leaves_a_circle_is_none(tmp_path):
    text = rule('topic = "orders"\nto = "web.x"\n[[rule]]\nid = "b"\ntopic = "web.*"\nok = true')
    assert not load(written(tmp_path, text)).loop


def test_a_mapping_of_many_rules_is_read_in_time_that_grows_with_them(monkeypatch):
    """Neither does each rule read the file anew, nor is each pair looked at for a circle."""
    read, met = mock.Mock(wraps=tomllib.loads), mock.Mock(wraps=checks.may_meet)
    monkeypatch.setattr(tomllib, "loads", read)
    monkeypatch.setattr(checks, "may_meet", met)
    text = HEAD + "".join(
        f'[[rule]]\nid = "{n}"\nbody.x = {n}\nto = "out.{n}"\n' for n in range(200)
    )
    rules = load_text(text, Path("m.toml")).rules
    assert [each.place for each in rules] == [f"m.toml, line {4 + 4 * n}" for n in range(200)]
    assert sum(len(each.args[0]) for each in read.call_args_list) < 10 * len(text)
    assert met.call_count < 10 * len(rules)


@given(data=st.data())
def test_a_file_that_was_changed_anywhere_is_read_or_refused(data):
    """With nothing but `InvalidMapping`, whatever it says."""
    lines = COMPLETE.splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        changed = data.draw(
            st.sampled_from(
                ["", "x = 1", "to = 5", "id = []", "body = 1", "[[rule]]", "in = 3", '"" = {}']
            )
            | st.builds(lambda seed, each=lines[at]: shuffled(each, seed), st.integers(0, 99))
        )
        lines[at] = changed
    try:
        load_text("\n".join(lines), Path("m.toml"))
    except InvalidMapping as error:
        assert "m.toml" in str(error)  # noqa: PT017 - it need not be raised


def shuffled(line, seed):
    words = line.split(" ")
    random.Random(seed).shuffle(words)
    return " ".join(words)
