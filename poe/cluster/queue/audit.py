"""Whether other nodes hold what they say: a sample of it, now and then, by a hash that begins anew.

Who holds messages holds the same bytes as all others. So a node asks another one for a hash of some
messages that both are said to hold, which begins with a number that the asker has drawn: it cannot
be told by who does not hold them. A node that says nothing is asked again, `TURNS_MAX` times.
"""

import random
from collections.abc import Iterable
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from poe.broker.groups.ranges import Bounds
from poe.cluster.frames import Proof, Prove
from poe.cluster.identity import NodeRef, StreamId
from poe.cluster.queue.copies import Copies
from poe.record import POINTER_MAX

TURNS_MAX: Final = 4
SAMPLE_BYTES: Final = 64 * 1024
PROOF_BYTES_MAX: Final = 1024 * 1024
"""Of more no hash is told."""


class Said(NamedTuple):
    """What another node is said to hold, and this one holds."""

    stream: StreamId
    ranges: list[Bounds]


class _Question(NamedTuple):
    asked: Prove
    digest: int
    turns: int


class Audit:
    """What other nodes were asked to prove."""

    def __init__(self, queue: bytes, copies: Copies, dice: random.Random) -> None:
        self._queue = queue
        self._copies = copies
        self._dice = dice
        self._questions: dict[NodeRef, _Question] = {}

    def ask(self, node: NodeRef, said: Iterable[Said]) -> Prove | None:
        """Return what to ask a node; None: nothing, for nothing is said of it.

        What it was asked before, and has not answered, it is asked again.
        """
        question = self._questions.get(node)
        if question is None:
            question = self._draw([each for each in said if each.ranges])
            if question is None:
                return None
        self._questions[node] = question._replace(turns=question.turns + 1)
        return question.asked

    def is_silent(self, node: NodeRef) -> bool:
        """Return whether a node does not answer."""
        question = self._questions.get(node)
        return question is not None and question.turns >= TURNS_MAX

    def hear(self, node: NodeRef, proof: Proof) -> bool | None:
        """Return whether a node has proved what it was asked to; None: it was not asked that."""
        question = self._questions.get(node)
        if question is None or proof.seed != question.asked.seed:
            return None
        del self._questions[node]
        return proof.digest == question.digest

    def forget(self, node: NodeRef) -> None:
        """Wait for no answer of a node."""
        self._questions.pop(node, None)

    def answer(self, asked: Prove) -> Proof:
        """Return the hash that another node has asked for; without one where this does not hold it.

        Nor is it told of more than a node would ask for.
        """
        queue, stream, after, last, seed = asked
        digest = None
        if self._copies.held(stream).holds(after, last):
            found = self._copies.find(stream, after, last, PROOF_BYTES_MAX, PROOF_BYTES_MAX)
            if found is not None and found.last == last:
                digest = xxh3_64_intdigest(found.records, seed)
        return Proof(queue, stream, after, last, seed, digest)

    def _draw(self, said: list[Said]) -> _Question | None:
        if not said:
            return None
        stream, ranges = self._dice.choice(said)
        after, last = self._dice.choice(ranges)
        begin = self._dice.randrange(after, last)
        found = self._copies.find(stream, begin, last, POINTER_MAX, SAMPLE_BYTES)
        if found is None:
            return None
        seed = self._dice.getrandbits(64)
        asked = Prove(self._queue, stream, found.after, found.last, seed)
        return _Question(asked, xxh3_64_intdigest(found.records, seed), 0)
