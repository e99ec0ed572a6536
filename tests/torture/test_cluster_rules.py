"""Each rule of a cluster's history tells what breaks it, and is silent about what does not."""

from typing import Any

import pytest

from torture.cluster_history import Event, History, HistoryFile, make_body, message_of, read_history
from torture.cluster_rules import AGREED_US, RESTORED_US, RULES, broken

SECOND = 1_000_000
M1, M2 = message_of(make_body("m1", 20)), message_of(make_body("m2", 20))
Fields = dict[str, Any]
Q: Fields = {"queue": "q"}
G: Fields = {"queue": "q", "group": "g"}
NODES: list[Fields] = [{"node": node, "life": 1} for node in "abc"]
A, B, C = NODES
A2: Fields = {"node": "a", "life": 2}
D: Fields = {"node": "d", "life": 1}


def put(at_s, messages, op=1, *, state="ok", made=2):
    """A put of two copies, and its answer."""
    at_us = at_s * SECOND
    asked = Event(at_us, "put", **A, **Q, client="p", op=op, messages=messages, wanted=2)
    return [asked, Event(at_us + 10, "answered", **A, **Q, op=op, state=state, made=made)]


def event(at_s, kind, node=A, messages=(), **fields):
    """An event of the group."""
    return Event(round(at_s * SECOND), kind, **node, **G, messages=messages, **fields)


def held(at_s, messages, *nodes):
    """Copies of messages."""
    return [Event(round(at_s * SECOND), "stored", **node, **Q, messages=messages) for node in nodes]


BEGIN = [
    *(Event(0, "start", **node) for node in NODES),
    event(0, "group", client="x", state="at-least-once"),
]
SOUND = [
    *BEGIN,
    Event(0, "queue", **Q, wanted=2, made=100, size_bytes=1000),
    *put(20, (M1, M2)),
    *held(20, (M1, M2), A, B),
    event(21, "handed", A, (M1, M2)),
    event(22, "ack", A, (M1, M2)),
    event(22, "acked", A, (M1, M2)),
    *(event(60, "report", node) for node in NODES),
    *(event(60, "state", node, op=1, text="done") for node in NODES),
    *(event(61, "kept", node) for node in NODES),
]
"""Two messages that were put, handed out and done."""


def told(events):
    """The rules that a history breaks."""
    return {each.partition(":")[0] for each in broken(History(events))}


def without(*kinds):
    """The sound history without some kinds of events."""
    return [each for each in SOUND if each.kind not in kinds]


def test_a_sound_history_breaks_no_rule():
    assert broken(History(SOUND)) == []


def test_an_empty_history_breaks_no_rule():
    assert broken(History([])) == []


KILLS = [
    Event(30 * SECOND, "kill", **A, state="lost"),
    Event(31 * SECOND, "kill", **B, state="lost"),
]
TWICE = [*SOUND, event(21.5, "handed", B, (M1,))]
ALTERED = M1.partition("#")[0] + "#00000000"

OVER = [
    *(each for each in TWICE if (each.kind, each.node) != ("report", "a")),
    Event(25 * SECOND, "kill", **A, state="kept"),
    Event(25 * SECOND, "start", node="a", life=2),
    *(event(60, "report", {"node": node, "life": 1}, (M1,), state="again") for node in "bc"),
]
"""One message came twice and was done, and then the life of its origin was over."""

LOST = [
    *without("ack", "acked", "state", "report", "kept"),
    Event(0, "start", **D),
    event(21.5, "handed", B, (M1,)),
    Event(25 * SECOND, "kill", **A, state="kept"),
    Event(25 * SECOND, "start", **A2),
    *held(25, (M1, M2), A2),
    *(Event(45 * SECOND, "kill", **node, state="lost") for node in (A2, B)),
    *(Event(46 * SECOND, "start", node=node, life=3) for node in "ab"),
    *(event(60, "report", {"node": node, "life": 3}) for node in "ab"),
    event(60, "report", D, (M1,)),
]
"""One message came twice, and then both that held it were lost; two others know of it."""


def done_elsewhere(made_at_s):
    """The sound history, of another group; and `g` is made at a time, by whom all else is done."""
    return [
        *(each._replace(group="other") if each.group else each for each in SOUND),
        event(made_at_s, "group", A, client="x", state="at-least-once"),
        event(32, "ack", A, (M1, M2)),
        event(32, "acked", A, (M1, M2)),
    ]


def comes_back(done_by):
    """A node is fenced and forgotten, comes back with its disk, and hands out what was done."""
    return [
        *without("ack", "acked"),
        *(event(22, kind, done_by, (M1, M2)) for kind in ("ack", "acked")),
        Event(21 * SECOND, "start", node="d", life=1, peers=("a",)),
        Event(21 * SECOND + 5, "forget", **A),
        Event(23 * SECOND, "kill", **A, state="kept"),
        Event(40 * SECOND, "start", node="a", life=2),
        event(57, "handed", {"node": "a", "life": 2}, (M1,)),
        *(event(60, "report", node, (M1,)) for node in NODES),
    ]


BROKEN = {
    "by who was forgotten and comes back, and its own disk knows it done": ("again", comes_back(A)),
    "never done": ("lost", without("ack", "acked")),
    "done by who held it no more": (
        "lost",
        [
            *without("ack", "acked"),
            *(event(22, kind, A, (M1, M2), op=2) for kind in ("ack", "unheld")),
        ],
    ),
    "one holder lost": ("lost", [*without("ack", "acked"), KILLS[0]]),
    "never put": ("invented", [*SOUND, event(23, "handed", A, ("m9#1",))]),
    "altered": ("invented", [*SOUND, event(23, "handed", A, (ALTERED,))]),
    "refused": (
        "invented",
        [
            *SOUND,
            *put(30, ("m3#1",), 2, state="refused", made=0),
            event(31, "handed", A, ("m3#1",)),
        ],
    ),
    "at most once": (
        "twice at most once",
        [each._replace(state="at-most-once") if each.kind == "group" else each for each in TWICE],
    ),
    "nobody names it": ("unnamed", TWICE),
    "the life that ends the origin's knows nothing": (
        "unnamed",
        [*OVER, event(60, "report", {"node": "a", "life": 2})],
    ),
    "one that was there before it was lost does not name it": (
        "unnamed",
        [*LOST, event(60, "report", C)],
    ),
    "one node does not name it": (
        "unnamed",
        [*TWICE, *(event(60, "report", node, (M1,), state="certain") for node in (A, B))],
    ),
    "certain, but once": (
        "named falsely",
        [*SOUND, event(60, "report", A, (M1,), state="certain")],
    ),
    "certain, though one of two is known to have come to nobody": (
        "named falsely",
        [
            *SOUND,
            event(20.5, "handed", B, (M1,), state="lost"),
            event(20.6, "undelivered", B, (M1,)),
            event(60, "report", A, (M1,), state="certain"),
        ],
    ),
    "done there, and handed out": (
        "again",
        [
            *SOUND,
            event(23, "handed", A, (M1,)),
            *(event(60, "report", node, (M1,), state="again") for node in NODES),
        ],
    ),
    "done, all agree, and handed out": (
        "again",
        [
            *SOUND,
            event(50, "handed", B, (M1,)),
            *(event(60, "report", node, (M1,), state="again") for node in NODES),
        ],
    ),
    "paused there, and handed out": (
        "paused",
        [
            *SOUND,
            event(10, "pause", state="group_pause"),
            event(21.5, "pause", state="group_resume"),
        ],
    ),
    "ok with one": ("miscounted", [*SOUND, *put(30, (), 2, made=1)]),
    "under with two": ("miscounted", [*SOUND, *put(30, (), 2, state="under")]),
    "busy with a copy": ("miscounted", [*SOUND, *put(30, (), 2, state="busy", made=1)]),
    "one of two holders": (
        "miscounted",
        [each for each in SOUND if each.kind != "stored" or each.node == "a"],
    ),
    "a holder whose end was known": (
        "miscounted",
        [
            *without("stored"),
            *held(19, (M1, M2), A, B),
            Event(19_500_000, "kill", **B, state="lost"),
            Event(19_600_000, "down", **A, peers=("b",), made=1),
        ],
    ),
    "later first, though others were done with it, for the group was known": (
        "disordered",
        [*done_elsewhere(10), event(31, "handed", A, (M2,)), event(31.1, "handed", A, (M1,))],
    ),
    "later first": (
        "disordered",
        [*without("handed"), event(21, "handed", A, (M2,)), event(21.1, "handed", A, (M1,))],
    ),
    "another state": ("unequal", [*SOUND, event(60, "state", C, op=1, text="nothing")]),
    "something is kept": ("kept", [*SOUND, event(61, "kept", C, made=2, size_bytes=50)]),
    "more than it may": (
        "overfull",
        [*SOUND, Event(20 * SECOND, "stored", **C, **Q, messages=(M1,), made=101)],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_a_rule_is_told_by_that_rule_alone(name):
    rule, events = BROKEN[name]
    assert told(events) == {rule}


def test_each_rule_has_a_history_that_breaks_it():
    assert {rule for rule, _ in BROKEN.values()} == set(RULES)


RESTORED_S = RESTORED_US // SECOND
AGREED_S = AGREED_US // SECOND

ALLOWED = {
    "later first, for another node was handing the other one out when it ended": [
        *without("handed"),
        event(20.5, "untold", B),
        event(21, "handed", A, (M2,)),
        event(21.1, "handed", A, (M1,)),
    ],
    "all holders were lost at once": [*without("ack", "acked"), *KILLS],
    "a node was lost that is not known to hold it": [
        each for each in [*SOUND, *KILLS] if each.kind not in {"ack", "acked", "stored"}
    ],
    "certain, and one of two came to nobody, as only a node knew that is gone": [
        *SOUND,
        event(50, "handed", B, (M1,), state="lost"),
        event(50, "undelivered", B, (M1,)),
        Event(50 * SECOND, "kill", **B, state="lost"),
        event(60, "report", A, (M1,), state="certain"),
    ],
    "told to be dropped": [*without("ack", "acked"), event(23, "dropped", A, (M1, M2))],
    "later first, which its origin had dropped before it knew of the group": [
        *done_elsewhere(25),
        event(31, "handed", A, (M2,)),
        event(31.1, "handed", A, (M1,)),
    ],
    "a dead letter": [*without("ack", "acked"), event(23, "dead", A, (M1, M2))],
    "a put that nobody was answered": without("answered", "ack", "acked"),
    "twice, and named": [*TWICE, *(event(60, "report", node, (M1,)) for node in NODES)],
    "a life that began when the origin's was over, and all done": [
        *OVER,
        Event(40 * SECOND, "kill", node="a", life=2, state="kept"),
        Event(40 * SECOND, "start", node="a", life=3),
        event(60, "report", {"node": "a", "life": 3}),
    ],
    "lives that began when it was lost": [*LOST, event(60, "report", C, (M1,))],
    "one that crashed when it was lost": [
        *LOST,
        Event(47 * SECOND, "crash", **C),
        event(60, "report", C),
    ],
    "who was fenced before all was done, and forgotten, comes back with its disk": comes_back(B),
    "a later life has lost the disk of the one that knew it": [
        *(each for each in SOUND if (each.kind, each.node) != ("report", "a")),
        event(21.5, "handed", A, (M1,)),
        Event(22_100_000, "kill", **A, state="kept"),
        Event(22_200_000, "start", node="a", life=2),
        Event(22_300_000, "kill", node="a", life=2, state="lost"),
    ],
    "who was told has begun anew": [
        *(each for each in TWICE if (each.kind, each.node) != ("report", "a")),
        *(Event(58 * SECOND, "kill", **node, state="kept") for node in (B, C)),
        *(Event(59 * SECOND, "kill", **node, state="lost") for node in (A, B)),
    ],
    "twice, of which one was never heard": [*SOUND, event(20.5, "handed", A, (M1,), state="lost")],
    "the other one who knew it is no more": [
        *SOUND,
        event(21.5, "handed", B, (M1,)),
        Event(22 * SECOND, "kill", **B, state="lost"),
    ],
    "handed out where the acknowledgement was not known yet": [
        *SOUND,
        event(23, "handed", B, (M1,)),
        *(event(60, "report", node, (M1,)) for node in NODES),
    ],
    "the queue that knew of it has crashed": [
        *SOUND,
        Event(22_500_000, "crash", **A),
        event(23, "handed", A, (M1,)),
        *(event(60, "report", node, (M1,)) for node in NODES),
    ],
    "a holder ended before the answer, unknown to who gave it": [
        *SOUND,
        Event(20 * SECOND + 5, "kill", **B, state="lost"),
    ],
    "later first, of another node": [
        *without("handed"),
        event(21, "handed", B, (M2,)),
        event(21.1, "handed", A, (M1,)),
    ],
    "later first, of what was dropped and has come back": [
        *without("handed"),
        event(20.5, "dropped", A, (M1,)),
        event(21, "handed", A, (M2,)),
        event(21.1, "handed", A, (M1,)),
    ],
    "later first, of what its node had no room for": [
        *without("handed", "stored"),
        *held(20, (M1,), B, C),
        *held(20, (M2,), A, C),
        event(21, "handed", A, (M2,)),
        *held(21.05, (M1,), A),
        event(21.1, "handed", A, (M1,)),
    ],
    "a second group, which nobody else knew yet": [
        *SOUND,
        Event(20 * SECOND - 5, "group", **B, **Q | {"group": "late"}),
    ],
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_may_happen_breaks_no_rule(name):
    assert told(ALLOWED[name]) == set()


@pytest.mark.parametrize(("calm_s", "expected"), [(RESTORED_S + 1, {"lost"}), (10, set())])
def test_a_copy_that_is_lost_counts_no_more_when_there_was_time_to_make_another(calm_s, expected):
    end_s = 30 + calm_s
    events = [
        *without("ack", "acked", "state", "report", "kept"),
        Event(30 * SECOND, "kill", **A, state="lost"),
        Event(end_s * SECOND, "kill", **B, state="lost"),
        event(end_s + 100, "report", C),
    ]
    assert told(events) == expected


def test_a_fault_ends_a_calm_and_its_heal_begins_one():
    events = [
        Event(0, "start", **A),
        Event(10, "fault", op=1),
        Event(20, "fault", op=2),
        Event(30, "heal", op=1),
        Event(40, "heal", op=2),
        Event(70, "jump", **A),
        Event(100, "report", **A),
    ]
    history = History(events)
    assert [each for each in history.calms if each[0] < each[1]] == [(0, 10), (40, 70), (70, 100)]
    assert history.has_calm(5, 60, 20)
    assert not history.has_calm(5, 59, 20)


def test_what_is_written_is_read_and_a_cut_line_is_left_out(tmp_path):
    paths = [tmp_path / "one", tmp_path / "two"]
    for number, path in enumerate(paths):
        file = HistoryFile(path)
        for each in SOUND[number::2]:
            file.add(each)
        file.close()
    with paths[0].open("a") as cut:
        cut.write('{"at_us": 7, "ki')
    found = read_history(paths).events
    assert sorted(found) == sorted(SOUND)


def test_a_message_is_known_by_its_name_and_its_bytes():
    assert message_of(make_body("m1", 20)) != message_of(make_body("m1", 21))
    assert message_of(make_body("m1", 20)).startswith("m1#")
