"""What a mapping would do with messages that are there; nothing is put."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from poe.mapping.message import Columns, topic_text
from poe.mapping.rule_set import Compiled

REASONS_MAX: Final = 20
SAMPLES_MAX: Final = 3
"""Messages that are shown of each rule and what it does."""
_SHOWN_MAX: Final = 500


class DryRun:
    """Takes messages, and adds up what would become of them. Functions are called."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._counts: Counter[tuple[str, str]] = Counter()
        self._targets: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._samples: dict[str, list[dict[str, Any]]] = {}
        self.looked = 0
        """How many messages it has taken."""

    def take(self, batch: Columns) -> None:
        """Judge a batch."""
        decisions = self._compiled.decide(batch)
        self._counts.update(decisions.counts)
        for name, put in decisions.puts.items():
            topic = topic_text(name)
            self._targets[topic] += len(put.places)
            samples = self._samples.setdefault(topic, [])
            for place, value in zip(put.places, put.values, strict=True):
                if len(samples) >= SAMPLES_MAX:
                    break
                before = _shown(batch.values[place])
                place_told = {"topic": topic_text(batch.topic), "pointer": batch.pointers[place]}
                samples.append({**place_told, "before": before, "after": _shown(value)})
        stopped = [] if decisions.stopped is None else [decisions.stopped]
        fallen = [*decisions.failed, *decisions.dead, *stopped]
        self._reasons.update(f"{each.rule}: {each.why}" for each in fallen)
        self.looked += len(batch.pointers)

    def told(self) -> dict[str, Any]:
        """Return what was found, as JSON can hold it."""
        return {
            "messages": self.looked,
            "rules": [
                {"rule": rule, "action": action, "messages": count}
                for (rule, action), count in sorted(self._counts.items())
            ],
            "targets": dict(sorted(self._targets.items())),
            "reasons": dict(self._reasons.most_common(REASONS_MAX)),
            "samples": self._samples,
        }


def topics_of(compiled: Compiled, names: Iterable[bytes]) -> list[bytes]:
    """Return those of some topics that a mapping reads; `*` stands for anything."""
    patterns = [
        re.compile(re.escape(each).replace(r"\*", ".*"), re.DOTALL)
        for each in compiled.rules.source.topics
    ]
    return [each for each in names if any(p.fullmatch(topic_text(each)) for p in patterns)]


def _shown(value: bytes | None) -> str | None:
    return None if value is None else value[:_SHOWN_MAX].decode(errors="replace")
