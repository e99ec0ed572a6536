"""What the node has done lately: totals that it has told, at intervals, and rates made of them.

Two rings: an hour at 5 s and a day at a minute, of the node, and of those topics that somebody has
looked at. All of them are kept also while nobody looks, so that no chart begins empty.
"""

import asyncio
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from poe.errors import PoeError

INTERVAL_S: Final = 5.0
_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_MINUTE_S: Final = 60
_TOPICS_MAX: Final = 200
"""Topics with a history; a new one takes the place of the one that was not looked at longest."""
TOTALS: Final = ("messages_in", "bytes_in", "messages_out", "bytes_out")
_NODE_TOTALS: Final = ("syncs", "restarts", "cpu_s", "refused")
_GAUGES: Final = ("connections", "in_flight_bytes", "memory_bytes")

Told = Mapping[str, Any]
"""What the op `counters` answers."""


class Sample(NamedTuple):
    """What was told at one moment."""

    time_s: float
    """Since the epoch."""
    epoch: int
    """When the node has started: totals of two epochs cannot be subtracted."""
    totals: Mapping[str, float]
    gauges: Mapping[str, float]


class Series:
    """Samples of one thing, in two rings."""

    def __init__(self) -> None:
        self._hour: deque[Sample] = deque(maxlen=round(_HOUR / INTERVAL_S) + 1)
        self._day: deque[Sample] = deque(maxlen=_DAY // _MINUTE_S + 1)

    def add(self, sample: Sample) -> None:
        """Take one that is newer than all others."""
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


class History:
    """Asks for counters each INTERVAL_S and keeps them; belongs to one event loop."""

    def __init__(
        self, ask: Callable[[], Awaitable[Told]], clock: Callable[[], float] = time.time
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._node = Series()
        self._topics: OrderedDict[bytes, Series] = OrderedDict()
        self._last: tuple[Sample, Told] | None = None
        self._topic_rates: dict[bytes, dict[str, float]] = {}
        self._sampled = asyncio.Event()
        self.error: PoeError | None = None
        """Why there was no answer the last time; None where there was one."""

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                self.take(await self._ask())
                self.error = None
            except PoeError as error:
                self.error = error
            self._sampled.set()
            self._sampled = asyncio.Event()
            await asyncio.sleep(INTERVAL_S)

    @property
    def told(self) -> Told | None:
        """What the node has told last; None before the first answer."""
        return None if self._last is None else self._last[1]

    async def next_sample(self) -> None:
        """Wait until it was asked again, whether or not there was an answer."""
        await self._sampled.wait()

    def take(self, told: Told) -> None:
        """Keep what the node has told now."""
        now_s, node = self._clock(), told["node"]
        epoch = int(node.get("started_us", 0))
        totals: Counter[str] = Counter()
        for row in told["topics"].values():
            for name in TOTALS:
                totals[name] += row.get(name, 0)
        sums: dict[str, float] = {name: float(totals[name]) for name in TOTALS}
        for name in _NODE_TOTALS:
            if name in node:
                value = node[name]
                sums[name] = float(sum(value.values()) if isinstance(value, dict) else value)
        gauges = {name: float(node[name]) for name in _GAUGES if name in node}
        sample = Sample(now_s, epoch, sums, gauges)
        if self._last is not None:
            self._topic_rates = _rates_of_topics(self._last, sample, told)
        self._last = sample, told
        self._node.add(sample)
        for topic, series in self._topics.items():
            row = told["topics"].get(topic, {})
            series.add(Sample(now_s, epoch, {each: row.get(each, 0) for each in TOTALS}, {}))

    def of_node(self, *, is_day: bool) -> dict[str, Any]:
        """Return what the node has done."""
        return self._node.told(is_day=is_day)

    def of_topic(self, topic: bytes, *, is_day: bool) -> dict[str, Any]:
        """Return what was done with a topic since somebody looks at it."""
        if topic not in self._topics:
            self._topics[topic] = Series()
            while len(self._topics) > _TOPICS_MAX:
                self._topics.popitem(last=False)
        self._topics.move_to_end(topic)
        return self._topics[topic].told(is_day=is_day)

    def rates(self) -> dict[str, float]:
        """Return what the node does in a second now."""
        return self._node.rates()

    def topic_rates(self) -> Mapping[bytes, Mapping[str, float]]:
        """Return the same of those topics with which anything was done, by name."""
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
