"""A sample is one figure of one round; a row is the median of its rounds, beside its bar."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Summary:
    """What all rounds measured of one figure; the one place that turns rounds into a median."""

    values: tuple[float, ...]
    """One per round, in order; at least one."""

    @property
    def median(self) -> float:
        """The figure that is told and held against a bar."""
        return statistics.median(self.values)

    def spread(self) -> str:
        """The least and the greatest round."""
        return f"{as_figure(min(self.values))} … {as_figure(max(self.values))}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure of one round; name, unit and bar are the same in every round."""

    measure: str
    value: float
    unit: str
    bar: float
    is_least: bool
    """Whether the bar is the least that will do; else it is the most."""

    @classmethod
    def at_least(cls, measure: str, value: float, unit: str, bar: float) -> Self:
        """A figure that must reach the bar."""
        return cls(measure, value, unit, bar, is_least=True)

    @classmethod
    def at_most(cls, measure: str, value: float, unit: str, bar: float) -> Self:
        """A figure that must not exceed the bar."""
        return cls(measure, value, unit, bar, is_least=False)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    measure: str
    unit: str
    summary: Summary
    bar: str
    met: bool

    @classmethod
    def failed(cls, measure: str) -> Self:
        """The line of a script that ended with an error."""
        return cls(measure, "failed", Summary((float("nan"),)), "runs", met=False)

    def as_table_line(self) -> str:
        """The row in Markdown."""
        cells = (
            self.measure,
            f"{as_figure(self.summary.median)} {self.unit}",
            self.summary.spread(),
            str(len(self.summary.values)),
            self.bar,
            "yes" if self.met else "**no**",
        )
        return f"| {' | '.join(cells)} |"


def rows_of(rounds: Iterable[list[Sample]]) -> list[Row]:
    """Bring the samples of all rounds together, in the order of their first appearance."""
    samples: dict[str, list[Sample]] = {}
    for one_round in rounds:
        for sample in one_round:
            samples.setdefault(sample.measure, []).append(sample)
    return [_row_of(group) for group in samples.values()]


def as_table(rows: Iterable[Row]) -> list[str]:
    """Return the lines of a table in Markdown."""
    return [
        "| measure | median | least … greatest | rounds | bar | met |",
        "|---|---|---|---|---|---|",
        *(row.as_table_line() for row in rows),
    ]


def as_figure(value: float) -> str:
    """Four significant digits, in groups of three before the point."""
    rounded = float(f"{value:.4g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.4g}"


def _row_of(group: list[Sample]) -> Row:
    first, summary = group[0], Summary(tuple(sample.value for sample in group))
    met = summary.median >= first.bar if first.is_least else summary.median <= first.bar
    is_bar = first.bar > 0 or not first.is_least
    bar = f"{'≥' if first.is_least else '≤'} {first.bar:,.10g}" if is_bar else "none"
    return Row(first.measure, first.unit, summary, bar, met)
