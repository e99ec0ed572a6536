"""The promises of a best-effort queue across nodes, each a rule that a history keeps or breaks.

A rule is a function that returns what of a history breaks it, one sentence each. Where a promise
has exceptions (all holders lost at once, a node that ended before it could tell anybody), a rule
counts as one only what must have been one; so a broken rule is a fault of the product or of
who wrote the history, and never chance.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from torture.cluster_history import Event, GroupName, History, Put

Rule = Callable[[History], Iterator[str]]

SECOND_US: Final = 1_000_000
AGREED_US: Final = 15 * SECOND_US
"""When nothing happens for so long, all know the same."""
RESTORED_US: Final = 60 * SECOND_US
"""... and what had lost a copy has got another one."""
AT_MOST_ONCE: Final = "at-most-once"
_SHOWN_MAX = 5


def broken(history: History) -> list[str]:
    """Return what breaks the rules, at most a few sentences for each rule."""
    told = []
    for name, rule in RULES.items():
        found = list(rule(history))
        told += [f"{name}: {each}" for each in found[:_SHOWN_MAX]]
        if len(found) > _SHOWN_MAX:
            told.append(f"{name}: and {len(found) - _SHOWN_MAX} more")
    return told


def lost(history: History) -> Iterator[str]:
    """What is stored on k nodes reaches each group, unless k of them were lost at once."""
    refused = {event.op for event in history.of("unheld")}
    is_over = {
        name
        for name, events in history.by_message("ack", "dead").items()
        if any(event.kind == "dead" or event.op not in refused for event in events)
    }
    dropped = {message for event in history.of("dropped") for message in event.messages}
    for put in history.puts:
        if not put.promised:
            continue
        for group in _owed(history, put):
            for message in put.asked.messages:
                if (group, message) in is_over or message in dropped:
                    continue
                if not _may_be_lost(history, put, message):
                    yield f"{message} has {put.promised} copies, and was never done in {group}"


def _owed(history: History, put: Put) -> Iterator[GroupName]:
    """Yield the groups that must get a message: the only one, or those that its node must know."""
    queue = put.asked.queue
    groups = [name for name in history.groups if name[0] == queue and name not in history.deleted]
    asked = put.asked
    for name in groups:
        made = history.groups[name]
        is_known = len(groups) == 1 or (
            made.at_us <= asked.at_us
            and (asked.node, asked.life) in history.knowers(made, asked.at_us, AGREED_US)
        )
        if is_known and made.state != AT_MOST_ONCE:
            yield name


def _may_be_lost(history: History, put: Put, message: str) -> bool:
    """Return whether as many holders as were promised were lost without time to mend that."""
    stored = history.stored.get(message)
    holders = None if stored is None else {(each.node, each.life) for each in stored}
    # A put may ask for more copies than its queue has, and restores; and where there is no room
    # for one more, none is restored.
    has_room = put.asked.queue not in history.crowded
    kept = min(put.promised, history.copies.get(put.asked.queue, put.promised))
    count, last_us = 0, put.asked.at_us
    for at_us, node, life in history.losses:
        if at_us < put.asked.at_us or (holders is not None and (node, life) not in holders):
            continue
        restored_us = history.calm_end_us(last_us, RESTORED_US)
        if (
            has_room
            and restored_us is not None
            and restored_us <= at_us
            and history.live_count(restored_us) >= put.asked.wanted
        ):
            count = min(count, put.promised - kept)
        count, last_us = count + 1, at_us
        if count >= put.promised:
            return True
    return False


def invented(history: History) -> Iterator[str]:
    """What is handed out was put, with these bytes, and was not refused."""
    names = {message.partition("#")[0] for message in history.put_of}
    for event in (*history.of("handed"), *history.of("stored"), *history.of("dead")):
        for message in event.messages:
            put = history.put_of.get(message)
            if put is None:
                is_altered = message.partition("#")[0] in names
                what = "was put with other bytes" if is_altered else "was never put"
                yield f"{message}, {event.kind} by {event.node}, {what}"
            elif put.answered and put.answered.state in {"refused", "busy"}:
                yield f"{message} was {put.answered.state}, and {event.kind} by {event.node}"


def twice_at_most_once(history: History) -> Iterator[str]:
    """At most once is not twice."""
    for (group, message), handed in history.by_message("handed").items():
        if len(handed) > 1 and _is_at_most_once(history, group):
            yield f"{message} was handed to {group} by {_nodes(handed)}"


def unnamed(history: History) -> Iterator[str]:
    """What came twice is named by the report of each node that has the queue.

    But what was handed out by a life that ended before it could tell anybody, behind whoever can;
    and but for nodes that were not there yet when it was forgotten, or crashed since.
    """
    named: dict[str, dict[str, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
    lives: dict[str, int] = {}
    for event in history.of("report"):
        lives[event.node] = event.life
        named[event.queue][event.node] |= {(event.group, message) for message in event.messages}
    for (group, message), all_handed in history.by_message("handed").items():
        handed = [each for each in all_handed if each.state != "lost"]
        if len(handed) < 2 or _is_at_most_once(history, group) or group in history.deleted:
            continue
        known = [each for each in handed if _is_told(history, each)]
        if len([each for each in handed if known and each.at_us <= known[-1].at_us]) < 2:
            continue
        queue, name = group
        over_us = _over_us(history, group, message)
        silent = sorted(
            node
            for node, names in named.get(queue, {}).items()
            if (name, message) not in names and history.hears_since_us(node, lives[node]) <= over_us
        )
        if silent:
            where = _nodes(handed)
            yield f"{message} came to {group} from {where}, of which {silent} know nothing"


def _over_us(history: History, group: GroupName, message: str) -> float:
    """Return since when the life over that a message was put in, and it is done, or lost; or never.

    From then on nodes forget it, when all know the same of it.
    """
    done_us = history.done_us.get((group, message), math.inf)
    put = history.put_of.get(message)
    end_us = None if put is None else history.over_us(put.asked.node, put.asked.life)
    return math.inf if end_us is None else max(end_us, min(done_us, history.lost_us(message)))


def _is_told(history: History, event: Event) -> bool:
    """Return whether somebody must know in the end what a node did."""
    return bool(history.knowers(event, history.events[-1].at_us, AGREED_US))


def named_falsely(history: History) -> Iterator[str]:
    """What the report calls certain has come twice; what is known to have come to nobody does not
    count.
    """
    handed = history.by_message("handed")
    undelivered = history.by_message("undelivered")
    for event in history.of("report"):
        if event.state == "certain":
            name = (event.queue, event.group)
            for message in event.messages:
                known = [
                    each
                    for each in undelivered.get((name, message), ())
                    if (event.node, event.life) in history.knowers(each, event.at_us, AGREED_US)
                ]
                if len(handed.get((name, message), ())) - len(known) < 2:
                    yield f"{event.node} says of {message} that it came twice to {name}"


def again(history: History) -> Iterator[str]:
    """Nobody hands out what it knows to be done.

    But who comes back with its disk, as a copy of its folder was there in its place: all have
    forgotten then what is over, and done everywhere as far as they could know; not it itself.
    """
    handed = history.by_message("handed")
    for (group, message), acked in history.by_message("acked", "dead").items():
        for each in handed.get((group, message), ()):
            for ack in acked:
                is_own = ack.node == each.node  # its disk tells it so
                if (
                    ack.at_us < each.at_us
                    and (is_own or not _is_back(history, group, message, each))
                    and (each.node, each.life) in history.knowers(ack, each.at_us, AGREED_US)
                ):
                    at = f"{ack.node} at {ack.at_us}, and handed out by {each.node} at {each.at_us}"
                    yield f"{message} of {group} was acknowledged at {at}"
                    break


def paused(history: History) -> Iterator[str]:
    """Nobody hands out for a group of which it knows for a while that it is paused.

    Where clocks of those who say so jump, it counts what they say last by them.
    """
    said: dict[GroupName, list[Event]] = defaultdict(list)
    for event in history.of("pause"):
        said[event.queue, event.group].append(event)
    jumped = {event.node for event in history.of("jump")}
    sure = {name for name, its in said.items() if jumped.isdisjoint(each.node for each in its)}
    for event in history.of("handed"):
        name = event.queue, event.group
        its = said[name] if name in sure else ()
        before = [each for each in its if each.at_us <= event.at_us]
        last = before[-1] if before else event
        # What was handed out before is answered when that is written.
        is_known = last.state == "group_pause" and last.at_us + SECOND_US < event.at_us
        if is_known and (event.node, event.life) in history.knowers(last, event.at_us, AGREED_US):
            yield f"{event.node} hands out for {event.group}, paused at {last.at_us}"


def _is_back(history: History, group: GroupName, message: str, event: Event) -> bool:
    """Return whether a life began after its node was none of the cluster any more, and a message
    was over: what is on its disk others may have forgotten by then, as done everywhere.
    """
    begun_us = history.began_us(event.node, event.life)
    return _over_us(history, group, message) < begun_us and any(
        each.node == event.node and each.at_us < begun_us for each in history.of("forget")
    )


def miscounted(history: History) -> Iterator[str]:
    """`ok` is of as many copies as were wanted, on as many nodes, and `under` says how many."""
    ended_us = {(node, life): at_us for at_us, node, life in history.losses}
    gone_us: dict[tuple[str, str, int], int] = {}
    for each in history.of("down"):
        life = (each.peers[0], each.made)
        if each.at_us >= ended_us.get(life, each.at_us + 1):
            gone_us.setdefault((each.node, *life), each.at_us)
    done = _first_done(history)
    # What is to be handed out once at most may be done, and nobody has seen by whom.
    once = {name[0] for name in history.groups if _is_at_most_once(history, name)}
    for asked, answered in history.puts:
        if answered is None:
            continue
        state, made, wanted = answered.state, answered.made, asked.wanted
        if state not in {"ok", "under"}:
            if made:
                yield f"put {asked.op} was {state}, with {made} copies"
            continue
        if (state == "ok") != (made >= wanted) or made < 1:
            yield f"put {asked.op} was {state} with {made} copies, of {wanted}"
        for message in asked.messages if history.of("stored") and asked.queue not in once else ():
            nodes = _holders(history, message, answered, gone_us)
            is_done = done.get(message, answered.at_us) < answered.at_us  # nobody needs to hold it
            if len(nodes) < made and not is_done:
                yield f"{message} was {state} with {made} copies, and lay on {sorted(nodes)}"


def _holders(
    history: History, message: str, answered: Event, gone_us: dict[tuple[str, str, int], int]
) -> set[str]:
    """Return the nodes that had stored a message, but for whose end was known to who answered.

    `gone_us` is when a node was told of the end of a life of another.
    """
    at_us = answered.at_us
    return {
        each.node
        for each in history.stored.get(message, ())
        if each.at_us <= at_us
        and not each.at_us <= gone_us.get((answered.node, each.node, each.life), at_us) < at_us
    }


def disordered(history: History) -> Iterator[str]:
    """While one life of a node hands out, each producer's messages there come in their order.

    But for what it has dropped, or had no room for, and has got from another one. It drops what all
    groups are done with that it knows, and another one may be made then at a node which has not.
    What another node was handing out when it ended, with nobody told, is handed out later, too.
    """
    dropped = {message for event in history.of("dropped") for message in event.messages}
    order = {
        message: (put.asked, number, place)
        for number, put in enumerate(history.puts)
        for place, message in enumerate(put.asked.messages)
        if message not in dropped and _is_held_at_once(history, put, message)
    }
    handed: dict[GroupName, list[Event]] = defaultdict(list)
    for event in history.of("handed"):
        handed[event.queue, event.group].append(event)
    for group, events in handed.items():
        servers = history.servers[group]
        if len(servers) > 1:
            continue
        firsts: dict[str, list[str]] = defaultdict(list)
        unknown = _done_unknown(history, group, *servers)
        for message in dict.fromkeys(each for event in events for each in event.messages):
            if message in order and message not in unknown:
                asked = order[message][0]
                if (asked.node, asked.life) in servers:
                    firsts[asked.client].append(message)
        for client, messages in firsts.items():
            for one, other in pairwise(messages):
                if order[one][1:] > order[other][1:]:
                    yield f"{group} got {one} of {client} before {other}"


def _done_unknown(history: History, group: GroupName, server: tuple[str, int]) -> set[str]:
    """Return what other groups were done with while a life of a node may not have known of one."""
    made = history.groups.get(group)
    done: dict[str, int] = {}
    for (other, message), at_us in history.done_us.items():
        if other != group and other[0] == group[0]:
            done[message] = min(at_us, done.get(message, at_us))
    if made is None:
        return set(done)
    known = {
        at_us: made.at_us <= at_us and server in history.knowers(made, at_us, AGREED_US)
        for at_us in set(done.values())
    }
    return {message for message, at_us in done.items() if not known[at_us]}


def _is_held_at_once(history: History, put: Put, message: str) -> bool:
    """Return whether the node that was asked to put a message held it, as far as that was seen."""
    asked = put.asked
    return not history.stored or any(
        each.node == asked.node and each.at_us <= asked.at_us
        for each in history.stored.get(message, ())
    )


def unequal(history: History) -> Iterator[str]:
    """When nothing has happened for a while, all nodes have come to the same."""
    rounds: dict[tuple[int, str], list[Event]] = defaultdict(list)
    for event in history.of("state"):
        rounds[event.op, event.queue].append(event)
    for (number, queue), events in rounds.items():
        first, *others = events
        for other in others:
            if other.text != first.text:
                both = f"{first.node}: {first.text}; {other.node}: {other.text}"
                yield f"in round {number}, of {queue}, {both}"


def kept(history: History) -> Iterator[str]:
    """Nothing is kept of what all groups are done with."""
    for event in history.of("kept"):
        if event.made or event.size_bytes:
            much = f"{event.made} messages, {event.size_bytes} bytes"
            yield f"{event.node} keeps {much} of {event.queue}"


def overfull(history: History) -> Iterator[str]:
    """No node keeps more of a queue than it may."""
    limits = {event.queue: event for event in history.of("queue")}
    for event in history.of("stored"):
        limit = limits.get(event.queue)
        if limit and (event.made > limit.made or event.size_bytes > limit.size_bytes):
            yield f"{event.node} keeps {event.made} messages, {event.size_bytes} bytes"


def _first_done(history: History) -> dict[str, int]:
    """Return since when each message is done in a group."""
    acked = reversed(history.of("acked"))
    return {message: event.at_us for event in acked for message in event.messages}


def _is_at_most_once(history: History, group: GroupName) -> bool:
    made = history.groups.get(group)
    return made is not None and made.state == AT_MOST_ONCE


def _nodes(events: list[Event]) -> str:
    return ", ".join(f"{each.node}/{each.life} at {each.at_us}" for each in events)


RULES: Final[dict[str, Rule]] = {
    "lost": lost,
    "invented": invented,
    "twice at most once": twice_at_most_once,
    "unnamed": unnamed,
    "named falsely": named_falsely,
    "again": again,
    "paused": paused,
    "miscounted": miscounted,
    "disordered": disordered,
    "unequal": unequal,
    "kept": kept,
    "overfull": overfull,
}
