"""What one batch of a mapping is about to do, as it is written down before anything is put.

A plan is the data of a commit of its group, which is fenced: so whoever owns a partition next does
the same batch again, with the same numbers, and what is stored already is told by these. Strategy
of the numbers: producer = mapping, its group, unit and *life*, epoch = number of the plan, sequence
= which put of the batch onto that topic. A life is one ownership of a unit, told by the generation
of its grant, which a group never gives twice, not even after a power cut has set back the log of
groups: no two plans with different bounds can have the same numbers.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.client.producer.murmur2 import murmur2_of_all
from poe.errors import PlanTooLarge, UnknownPlan
from poe.mapping.decision import Put
from poe.mapping.message import Columns
from poe.mapping.rule_set import onward
from poe.protocol.envelope import Fields, encode_all
from poe.protocol.put import BATCH_COUNT_MAX, PutId

PLAN_BYTES_MAX: Final = 1024
"""What a group keeps with a position."""

NUMBER_MAX: Final = (1 << 32) - 1
"""An epoch has 32 bits."""

PUT_BYTES_MAX: Final = 4 << 20
"""Of messages in one put, but for one that is larger. It decides which message is in which put,
so other plans than those of today need another version."""

REASON_BYTES_MAX: Final = 500

_VERSION: Final = 1
_FIELDS: Final = (int, int, int, int, int, bytes, dict, int, str | None, str)
"""What a plan holds, but for its trial."""
_TRIAL_FIELDS: Final = (int, int, bytes, int)
_PINNED: Final = b"map\0"
_FAMILY_BYTES: Final = 5
_LIFE_BYTES: Final = 7
"""Microseconds that last for two thousand years. A life that came out less than one before would
have all that it puts taken for stored."""
_TOPIC_KEY_BYTES: Final = 6
_POSITIVE: Final = 0x7FFFFFFF


class Trial(NamedTuple):
    """Messages of which somebody may have died, told before they are looked at."""

    limit: int
    """Messages to look at, at a time."""

    until: int
    """Pointer of the last of them."""

    by: bytes = b""
    """The process that looks at them; nothing where none does."""

    deaths: int = 0
    """How many processes have ended over one that was alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Batch `number` of a life of a unit: what lies behind `first`, up to `last`.

    All before it is done with. Where `first` is `last` there is no batch yet.
    """

    life: int
    number: int
    first: int
    last: int
    count: int = 0
    """Messages in it."""

    rules: bytes = b""
    """Hash of the rules that decide."""

    spread: Mapping[bytes, int] = field(default_factory=dict)
    """How many partitions a target has, by `topic_key`; of those with more than one."""

    attempts: int = 0
    """How often the next message was tried."""

    reason: str | None = None
    """Why its one message is given up, whatever the rules would say."""

    rule: str = ""
    """Which rule gave it up."""

    trial: Trial | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return self.first == self.last

    def encode(self) -> bytes:
        """Return the bytes.

        Raises:
            PlanTooLarge: they do not fit into a commit; a smaller batch has fewer targets.
        """
        packed: bytes = msgpack.packb(
            [
                _VERSION,
                self.life,
                self.number,
                self.first,
                self.last,
                self.count,
                self.rules,
                dict(self.spread),
                self.attempts,
                self.reason,
                self.rule,
                self.trial,
            ]
        )
        if len(packed) > PLAN_BYTES_MAX:
            raise PlanTooLarge(len(packed), PLAN_BYTES_MAX)
        return packed

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what was encoded.

        Raises:
            UnknownPlan: it is none, or one of another version of Poe.
        """
        try:
            version, *values = msgpack.unpackb(data, strict_map_key=False)
            if version != _VERSION:
                raise UnknownPlan(f"it is of version {version}; this Poe knows {_VERSION}")  # noqa: EM102, TRY003 - part of one
            *fields, trial = values
            if not _are(fields, _FIELDS) or not (trial is None or _are(trial, _TRIAL_FIELDS)):
                raise UnknownPlan("its fields are others")  # noqa: TRY003 - part of one
            life, number, first, last, count, rules, spread, attempts, reason, rule = fields
            return cls(
                life=life,
                number=number,
                first=first,
                last=last,
                count=count,
                rules=rules,
                spread=spread,
                attempts=attempts,
                reason=reason,
                rule=rule,
                trial=None if trial is None else Trial(*trial),
            )
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise UnknownPlan(str(error) or type(error).__name__) from error


def _are(fields: Sequence[object], kinds: Sequence[Any]) -> bool:
    return len(fields) == len(kinds) and all(map(isinstance, fields, kinds))


def producer_of(mapping: str, group_us: int, unit: bytes, life: int) -> bytes:
    """Return under which name a life of a unit puts.

    Up to the life the name stays the same, by which topics know to forget lives that are over. They
    are those of one group, which `group_us` tells from others of its name.
    """
    name = mapping.encode("utf-8", "surrogateescape")
    family = blake2b(b"%s\0%d\0%s" % (name, group_us, unit), digest_size=_FAMILY_BYTES).digest()
    return _PINNED + family + (life % (1 << 8 * _LIFE_BYTES)).to_bytes(_LIFE_BYTES)


def topic_key(topic: bytes) -> bytes:
    """Return what stands for a topic in a plan."""
    return blake2b(topic, digest_size=_TOPIC_KEY_BYTES).digest()


class Target(NamedTuple):
    """A topic that is put onto, as its server describes it."""

    partitions: tuple[bytes, ...]
    """Their own topics."""

    has_envelope: bool


class Sent(NamedTuple):
    """One put of a batch, as it is sent."""

    topic: bytes
    """Of a partition."""

    put_id: PutId
    messages: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Decided:
    """What becomes of a batch, less what cannot be dealt with now."""

    batch: Columns
    puts: Mapping[bytes, Put]
    """By topic."""

    own: frozenset[bytes] = frozenset()
    """Topics of the mapping itself, for which all headers are told already."""


def spread_of(targets: Mapping[bytes, Target]) -> dict[bytes, int]:
    """Return what a plan is to remember of the topics that its batch is put onto."""
    return {
        topic_key(topic): len(target.partitions)
        for topic, target in targets.items()
        if len(target.partitions) > 1
    }


def puts_of(
    plan: Plan, producer: bytes, decided: Decided, targets: Mapping[bytes, Target]
) -> list[Sent]:
    """Return the puts of a batch; the same ones whenever it is asked with the same.

    Those of one partition are in the order in which they are to be stored. How many partitions a
    topic has is what the plan says, since it may have grown.
    """
    sent = []
    sequences: Counter[bytes] = Counter()  # a partition may be put onto by its own name, too
    for topic, put in sorted(decided.puts.items()):
        target = targets[topic]
        count = plan.spread.get(topic_key(topic), 1)
        names = target.partitions[:count]
        batch = None if topic in decided.own else decided.batch
        for name, part in _parts(put, names, plan.number):
            messages = _encoded(part, batch) if target.has_envelope else part.values
            for piece in _pieces(messages):
                sent.append(Sent(name, PutId(producer, plan.number, sequences[name]), piece))
                sequences[name] += 1
    return sent


def _encoded(put: Put, batch: Columns | None) -> list[bytes]:
    """Return messages in envelopes, with the headers that tell where they come from."""
    nothing = [None] * len(put.values)
    headers = put.headers or nothing
    if batch is not None:
        headers = [
            onward(batch, place, each) for place, each in zip(put.places, headers, strict=True)
        ]
    fields: list[Fields] = list(zip(put.values, put.keys or nothing, headers, strict=True))
    return encode_all(fields)


def _parts(put: Put, names: Sequence[bytes], number: int) -> Iterator[tuple[bytes, Put]]:
    """Yield what goes to each partition: by key, and what has none to the batch's own one."""
    own = number % len(names)
    if len(names) == 1 or put.keys is None:
        yield names[own], put
        return
    hashes = murmur2_of_all([key or b"" for key in put.keys]) & _POSITIVE
    places: dict[int, list[int]] = {}
    for place, (key, hashed) in enumerate(zip(put.keys, hashes.tolist(), strict=True)):
        places.setdefault(own if key is None else hashed % len(names), []).append(place)
    for partition, each in sorted(places.items()):
        columns = (None if c is None else [c[place] for place in each] for c in put)
        yield names[partition], Put(*columns)  # type: ignore[arg-type]


def _pieces(messages: Any) -> Iterator[Sequence[bytes]]:  # noqa: ANN401 - a sequence of bytes
    """Yield the messages of one put after the other."""
    sizes = list(map(len, messages))
    if sum(sizes) <= PUT_BYTES_MAX and len(sizes) <= BATCH_COUNT_MAX:
        yield messages
        return
    begin = size = 0
    for place, each in enumerate(sizes):
        is_full = size + each > PUT_BYTES_MAX or place - begin == BATCH_COUNT_MAX
        if place > begin and is_full:
            yield messages[begin:place]
            begin, size = place, 0
        size += each
    yield messages[begin:]
