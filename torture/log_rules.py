"""The promises of replicated topics, each a rule that a history keeps or breaks.

A rule is a function that returns what of a history breaks it, one sentence each, as those of queues
(`torture/cluster_rules.py`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from torture.log_history import Copy, Judged, LogHistory, Put

Rule = Callable[[Judged], Iterator[str]]
SHOWN_MAX = 4


def broken(history: LogHistory) -> list[str]:
    """Return what breaks the rules, at most a few sentences for each rule."""
    told = []
    judged = history.judged()
    for name, rule in RULES.items():
        found = list(rule(judged))
        told += [f"{name}: {each}" for each in found[:SHOWN_MAX]]
        if len(found) > SHOWN_MAX:
            told.append(f"{name}: and {len(found) - SHOWN_MAX} more")
    return told


def missing(judged: Judged) -> Iterator[str]:
    """What was acknowledged is at each node when all has healed, where its client was told.

    However often that was: who puts again what is there is told the same.
    """
    found = {
        (copy.node, copy.topic): {message: pointer for pointer, message in copy.records}
        for copy in judged.history.copies
    }
    acks = ((put, each.pointer) for put in judged.puts for each in put.acks)
    for put, last in acks:
        first = last - len(put.messages) + 1
        for (node, topic), there in found.items():
            if topic != put.topic:
                continue
            for pointer, message in enumerate(put.messages, first):
                if pointer > judged.trimmed[topic] and there.get(message) != pointer:
                    at = there.get(message, "nowhere")
                    yield f"{put}: {message[:20]!r} is not at {pointer} of {node}, but {at}"
                    break


def two_values(judged: Judged) -> Iterator[str]:
    """One pointer has one message, on all nodes and at all times."""
    values: dict[tuple[str, int], bytes] = {}
    for topic, (pointer, message) in judged.records():
        known = values.setdefault((topic, pointer), message)
        if known != message:
            yield f"{topic} has {known[:20]!r} and {message[:20]!r} at {pointer}"


def unequal(judged: Judged) -> Iterator[str]:
    """All nodes have the same messages, with the same ordinals, in data files of the same bytes."""
    copies: dict[str, list[Copy]] = defaultdict(list)
    for copy in judged.history.copies:
        copies[copy.topic].append(copy)
    for topic, (first, *others) in copies.items():
        for other in others:
            both = f"{topic} at {first.node} and {other.node}"
            if first.records != other.records:
                yield f"{both}: {len(first.records)} and {len(other.records)} messages differ"
            elif first.records and first.first_ordinal != other.first_ordinal:
                yield f"{both}: they begin with {first.first_ordinal} and {other.first_ordinal}"
            if first.files != other.files:
                yield f"{both}: files {sorted(first.files)} and {sorted(other.files)} differ"


def disordered(judged: Judged) -> Iterator[str]:
    """The puts of a producer lie in its order, each once; of plain ones the acknowledged do."""
    puts: dict[tuple[str, str], list[Put]] = defaultdict(list)
    for put in judged.puts:
        if put.is_sequenced or put.acks:
            puts[put.topic, put.client].append(put)
    for (topic, client), own in puts.items():
        last = 0
        for put in sorted(own, key=lambda each: each.number):
            for message in put.messages:
                places = judged.places(topic, message)
                if places and min(places) <= last:
                    yield f"{message[:20]!r} of {client} is at {min(places)}, behind {last}"
                last = max(places, default=last)


def refused_and_there(judged: Judged) -> Iterator[str]:
    """A put that was refused is stored nowhere."""
    for put in judged.puts:
        if put.is_refused and any(judged.places(put.topic, each) for each in put.messages):
            yield f"{put} was refused for {put.tries[-1].why}, and is there"


def halved_or_twice(judged: Judged) -> Iterator[str]:
    """A put is whole or absent, one message behind the other, and never there twice."""
    for put in judged.puts:
        places = [judged.places(put.topic, each) for each in put.messages]
        if any(len(each) > 1 for each in places):
            yield f"{put} is there twice"
            continue
        there = [next(iter(each)) for each in places if each]
        if any(two != one + 1 for one, two in pairwise(there)):
            yield f"{put} has gaps"
    for copy in judged.history.copies:
        have = {message for _, message in copy.records}
        for put in judged.puts:
            count = sum(message in have for message in put.messages)
            if put.topic == copy.topic and 0 < count < len(put.messages):
                yield f"{put}: {count} of {len(put.messages)} are at {copy.node}"


def invented(judged: Judged) -> Iterator[str]:
    """What is there was put."""
    known = {message for put in judged.history.puts for message in put.messages}
    for topic, (pointer, message) in judged.records():
        if message not in known:
            yield f"{topic} has {message[:20]!r} at {pointer}, which nobody has put"


def falling(judged: Judged) -> Iterator[str]:
    """Pointers rise."""
    rows = [(read.node, read.topic, read.records) for read in judged.reads]
    rows += [(copy.node, copy.topic, copy.records) for copy in judged.history.copies]
    for node, topic, records in rows:
        if any(one >= two for (one, _), (two, _) in pairwise(records)):
            yield f"{topic} at {node} has pointers that do not rise"


def taken_back(judged: Judged) -> Iterator[str]:
    """What was read stays, and nothing comes in between: a reader has a prefix of what there is."""
    final = {copy.topic: copy.records for copy in judged.history.copies}
    for read in judged.reads:
        if read.topic not in final:
            continue
        begin, end = max(read.after, judged.trimmed[read.topic]), read.end
        was = [each for each in read.records if each[0] > begin]
        now = [each for each in final[read.topic] if begin < each[0] <= end]
        if was != now:
            which = next(iter(set(was) ^ set(now)), (0, b"order"))
            yield f"{read.node} told at {read.at_us} of {read.topic} otherwise than now: {which}"


def overlooked(judged: Judged) -> Iterator[str]:
    """No producer is told that its put does not follow its last one, or was put by another."""
    for put in judged.puts:
        for each in put.tries:
            if each.outcome == "wrong":
                yield f"{put}: {each.why}"


def stuck(judged: Judged) -> Iterator[str]:
    """When all has healed, all nodes have copies that go on, and take puts."""
    for each in judged.history.stuck:
        yield each.what


RULES: Final[dict[str, Rule]] = {
    "missing": missing,
    "two values": two_values,
    "unequal": unequal,
    "disordered": disordered,
    "refused, and there": refused_and_there,
    "halved or twice": halved_or_twice,
    "invented": invented,
    "falling": falling,
    "taken back": taken_back,
    "overlooked": overlooked,
    "stuck": stuck,
}
