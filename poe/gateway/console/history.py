"""What the node has done lately: totals that it has told, at intervals, and rates made of them.

Two rings: an hour at 5 s and a day at a minute, of the node, and of those topics that somebody has
looked at. All of them are kept also while nobody looks, so that no chart begins empty.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from poe.errors import PoeError
from poe.gateway.console.lags import Units, lag_of

INTERVAL_S: Final = 5.0
_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_MINUTE_S: Final = 60
_TOPICS_MAX: Final = 200
"""Topics with a history; a new one takes the place of the one that was not looked at longest."""
TOTALS: Final = ("messages_in", "bytes_in", "messages_out", "bytes_out")
_NODE_TOTALS: Final = ("syncs", "restarts", "cpu_s", "refused")
_GAUGES: Final = ("connections", "in_flight_bytes", "memory_bytes", "disk_free_bytes")
_APPEARED_MAX: Final = 10
_SPARKS_MAX: Final = 2000
"""Topics of which the newest rates are kept, though nobody looks."""
_SPARK_COUNT: Final = 60
_GROUPS_MAX: Final = 50
"""Groups whose lag is looked up, since somebody has looked at them within the last hour."""

Told = Mapping[str, Any]
"""What the op `counters` answers."""


class GroupSample(NamedTuple):
    """How far a group was behind at one moment, and what was put in a second then."""

    time_s: float
    messages: int
    seconds: float
    put_per_s: float


class Pace(NamedTuple):
    """How quickly a group works, and what comes of it."""

    per_s: float | None
    """Messages; None where that is not known yet."""
    catch_up_s: float | None
    """Until it is behind no more; None where it does not come closer."""


def pace_of(samples: Sequence[GroupSample]) -> Pace:
    """Return the pace of the last minute."""
    if len(samples) < 2:  # noqa: PLR2004 - a difference has two ends
        return Pace(None, None)
    last = samples[-1]
    first = next(each for each in samples if each.time_s >= last.time_s - _MINUTE_S)
    elapsed_s = last.time_s - first.time_s
    if elapsed_s <= 0:
        return Pace(None, None)
    grown_per_s = (last.messages - first.messages) / elapsed_s
    some = [each for each in samples if first.time_s < each.time_s]
    put_per_s = sum(each.put_per_s for each in some) / len(some)
    catch_up_s = last.messages / -grown_per_s if grown_per_s < 0 else None
    return Pace(max(0.0, put_per_s - grown_per_s), 0.0 if not last.messages else catch_up_s)


class Sample(NamedTuple):
    """What was told at one moment."""

    time_s: float
    """Since the epoch."""
    epoch: object
    """When the node has started, and of what these are: totals of two cannot be subtracted."""
    totals: Mapping[str, float]
    gauges: Mapping[str, float]


class Series:
    """Samples of one thing, in two rings."""

    def __init__(self) -> None:
        self._hour: deque[Sample] = deque(maxlen=round(_HOUR / INTERVAL_S) + 1)
        self._day: deque[Sample] = deque(maxlen=_DAY // _MINUTE_S + 1)

    def add(self, sample: Sample) -> None:
        """Take one; those that would be newer are of before the clock was put back."""
        for ring in (self._hour, self._day):
            while ring and ring[-1].time_s >= sample.time_s:
                ring.pop()
        self._hour.append(sample)
        if not self._day or sample.time_s - self._day[-1].time_s >= _MINUTE_S:
            self._day.append(sample)

    def told(self, *, is_day: bool) -> dict[str, Any]:
        """Return times, and by name a value for each; None where there is none to tell."""
        samples = self._day if is_day else self._hour
        times: list[float] = []
        series: dict[str, list[float | None]] = {}
        before: Sample | None = None
        for each in samples:
            if before is not None:
                times.append(round(each.time_s, 1))
                values = {**rates(before, each), **each.gauges}
                for name in (*each.totals, *each.gauges):
                    series.setdefault(name, []).append(values.get(name))
            before = each
        return {"times_s": times, "series": series}

    def rates(self) -> dict[str, float]:
        """Return what is done in a second, by the last two samples; empty where that is unknown."""
        return rates(self._hour[-2], self._hour[-1]) if len(self._hour) > 1 else {}


def rates(before: Sample, after: Sample) -> dict[str, float]:
    """Return what was done in a second between two; empty where the node has started between."""
    elapsed_s = after.time_s - before.time_s
    if after.epoch != before.epoch or elapsed_s <= 0:
        return {}
    return {
        name: round(max(0.0, value - before.totals.get(name, 0)) / elapsed_s, 3)
        for name, value in after.totals.items()
    }


class _Topic:
    """A topic that somebody has looked at."""

    def __init__(self) -> None:
        self.series = Series()
        self.partitions: Sequence[bytes] = ()
        """Those of which the node tells what was done."""


class _Watched:
    """A group that somebody has looked at."""

    def __init__(self) -> None:
        self.samples: deque[GroupSample] = deque(maxlen=round(_HOUR / INTERVAL_S) + 1)
        self.looked_s = 0.0


class History:
    """Asks for counters each INTERVAL_S and keeps them; belongs to one event loop."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[Told]],
        ask_lag: Callable[[str], Awaitable[Units]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ask = ask
        self._ask_lag = ask_lag
        self._clock = clock
        self._node = Series()
        self._topics: OrderedDict[bytes, _Topic] = OrderedDict()
        self._last: tuple[Sample, Told] | None = None
        self._gone: Counter[str] = Counter()
        self._gone_refused: Counter[str] = Counter()
        self._topic_rates: dict[bytes, dict[str, float]] = {}
        self._sparks: dict[bytes, deque[float]] = {}
        self._groups: OrderedDict[str, _Watched] = OrderedDict()
        self._refused: deque[tuple[float, Counter[str]]] = deque(maxlen=_HOUR // _MINUTE_S + 1)
        self._appeared: deque[bytes] = deque(maxlen=_APPEARED_MAX)
        self._sampled = asyncio.Event()

    async def run(self) -> None:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sample_node())
            # Beside it: a group may wait long for nodes that are down.
            tasks.create_task(self._sample_groups())

    async def _sample_node(self) -> None:
        while True:
            with suppress(PoeError):  # it is away
                self.take(await self._ask())
            self._sampled.set()
            self._sampled = asyncio.Event()
            await asyncio.sleep(INTERVAL_S)

    async def _sample_groups(self) -> None:
        while True:
            await self._look_at_groups()
            await asyncio.sleep(INTERVAL_S)

    @property
    def told(self) -> Told | None:
        """What the node has told last; None before the first answer."""
        return None if self._last is None else self._last[1]

    @property
    def gone(self) -> Mapping[str, int]:
        """What was done with topics that are there no more, as far as that was told here."""
        return self._gone

    async def next_sample(self) -> None:
        """Wait until it was asked again, whether or not there was an answer."""
        await self._sampled.wait()

    def take(self, told: Told) -> None:
        """Keep what the node has told now."""
        now_s, node = self._clock(), told["node"]
        epoch = int(node.get("started_us", 0))
        if self._last is not None:
            self._note_gone(self._last, epoch, told)
        totals = self._gone.copy()
        for row in told["topics"].values():
            for name in TOTALS:
                totals[name] += row.get(name, 0)
        sums: dict[str, float] = {name: float(totals[name]) for name in TOTALS}
        for name in _NODE_TOTALS:
            if name in node:
                value = node[name]
                sums[name] = float(sum(value.values()) if isinstance(value, dict) else value)
        gauges = {name: float(node[name]) for name in _GAUGES if node.get(name) is not None}
        sample = Sample(now_s, epoch, sums, gauges)
        if self._last is not None:
            self._topic_rates = _rates_of_topics(self._last, sample, told)
            self._draw_sparks()
            if self._last[0].epoch == epoch:
                self._appeared.extend(told["topics"].keys() - self._last[1]["topics"].keys())
        self._note_refusals(now_s, told)
        self._last = sample, told
        self._node.add(sample)
        for topic in self._topics.values():
            rows = [told["topics"].get(each, {}) for each in topic.partitions]
            sums = {name: sum(row.get(name, 0) for row in rows) for name in TOTALS}
            topic.series.add(Sample(now_s, (epoch, topic.partitions), sums, {}))

    def watch(self, group: str) -> Sequence[GroupSample]:
        """Return how far a group was behind, and look it up for an hour from now on."""
        if group not in self._groups:
            self._groups[group] = _Watched()
            while len(self._groups) > _GROUPS_MAX:
                self._groups.popitem(last=False)
        self._groups.move_to_end(group)
        watched = self._groups[group]
        watched.looked_s = self._clock()
        return watched.samples

    def spark(self, *partitions: bytes) -> list[float]:
        """Return the newest rates of puts onto a topic; none where nothing was put lately."""
        some = [self._sparks[each] for each in partitions if each in self._sparks]
        count = max(map(len, some), default=0)
        whole = ([0.0] * (count - len(each)) + list(each) for each in some)
        return [sum(each) for each in zip(*whole, strict=True)]

    @property
    def appeared(self) -> Sequence[bytes]:
        """Topics of which was heard first while this is running; some may be older."""
        return list(self._appeared)

    def refused_lately(self) -> dict[str, int]:
        """Return what the node has refused in the last hour, by the name of the error."""
        if len(self._refused) < 2:  # noqa: PLR2004 - a difference has two ends
            return {}
        grown = self._refused[-1][1] - self._refused[0][1]
        return dict(sorted(grown.items(), key=lambda each: -each[1]))

    async def _look_at_groups(self) -> None:
        for name, watched in list(self._groups.items()):
            if self._clock() > watched.looked_s + _HOUR:
                self._groups.pop(name, None)  # unless others were looked at meanwhile, too many
                continue
            try:
                units = await self._ask_lag(name)
            except PoeError:  # it is gone, or will be there again
                continue
            put_per_s = sum(
                self._topic_rates.get(unit, {}).get("messages_in", 0.0) for unit in units
            )
            watched.samples.append(GroupSample(self._clock(), *lag_of(units), put_per_s))

    def _draw_sparks(self) -> None:
        for topic in self._topic_rates:
            if topic not in self._sparks and len(self._sparks) < _SPARKS_MAX:
                self._sparks[topic] = deque(maxlen=_SPARK_COUNT)
        for topic, values in list(self._sparks.items()):
            values.append(self._topic_rates.get(topic, {}).get("messages_in", 0.0))
            if not any(values) and len(values) == _SPARK_COUNT:
                del self._sparks[topic]

    def _note_gone(self, last: tuple[Sample, Told], epoch: int, told: Told) -> None:
        """Keep what was done with topics that were deleted: totals only grow."""
        if last[0].epoch != epoch:
            self._gone.clear()
            self._gone_refused.clear()
            return
        for topic, old in last[1]["topics"].items():
            row = told["topics"].get(topic, {})
            if any(row.get(name, 0) < old.get(name, 0) for name in TOTALS):
                self._gone.update({name: old.get(name, 0) for name in TOTALS})
            refused = row.get("refused", {})
            if any(refused.get(name, 0) < count for name, count in old.get("refused", {}).items()):
                self._gone_refused.update(old["refused"])

    def _note_refusals(self, now_s: float, told: Told) -> None:
        """Keep what was refused in all, a minute apart; a node that starts anew begins at zero."""
        total = self._gone_refused + Counter(told["node"].get("refused", {}))
        for row in told["topics"].values():
            total.update(row.get("refused", {}))
        if self._refused and sum(total.values()) < sum(self._refused[-1][1].values()):
            self._refused.clear()
        while self._refused and self._refused[-1][0] > now_s:  # the clock was put back
            self._refused.pop()
        while len(self._refused) > 1 and self._refused[1][0] <= now_s - _HOUR:  # it was away
            self._refused.popleft()
        if self._refused and now_s < self._refused[-1][0] + _MINUTE_S and len(self._refused) > 1:
            self._refused[-1] = self._refused[-1][0], total
        else:
            self._refused.append((now_s, total))

    def of_node(self, *, is_day: bool) -> dict[str, Any]:
        """Return what the node has done."""
        return self._node.told(is_day=is_day)

    def of_topic(
        self, topic: bytes, partitions: Sequence[bytes], *, is_day: bool
    ) -> dict[str, Any]:
        """Return what was done with a topic since somebody looks at it: with its partitions."""
        if topic not in self._topics:
            self._topics[topic] = _Topic()
            while len(self._topics) > _TOPICS_MAX:
                self._topics.popitem(last=False)
        self._topics.move_to_end(topic)
        if self._topics[topic].partitions != partitions:  # else samples share what they hold
            self._topics[topic].partitions = partitions
        return self._topics[topic].series.told(is_day=is_day)

    def rates(self) -> dict[str, float]:
        """Return what the node does in a second now."""
        return self._node.rates()

    def topic_rates(self) -> Mapping[bytes, Mapping[str, float]]:
        """Return the same of those partitions with which anything was done, by name."""
        return self._topic_rates


def _rates_of_topics(
    last: tuple[Sample, Told], sample: Sample, told: Told
) -> dict[bytes, dict[str, float]]:
    before, before_told = last
    if before.epoch != sample.epoch or sample.time_s <= before.time_s:
        return {}
    elapsed_s = sample.time_s - before.time_s
    found = {}
    for topic, row in told["topics"].items():
        old = before_told["topics"].get(topic, {})
        moved = {name: row.get(name, 0) - old.get(name, 0) for name in TOTALS}
        if any(moved.values()):
            found[topic] = {
                name: round(max(0, value) / elapsed_s, 3) for name, value in moved.items()
            }
    return found
