"""A measured value beside its bar; the benchmark scripts print one JSON line of these."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    measure: str
    value: float
    unit: str
    bar: str = ""
    met: bool | None = None
    """None where the row has no bar."""

    @classmethod
    def at_least(cls, measure: str, value: float, unit: str, bar: float) -> Self:
        """A row whose value must reach the bar."""
        return cls(measure, value, unit, f"≥ {bar:,.10g}", value >= bar)

    @classmethod
    def at_most(cls, measure: str, value: float, unit: str, bar: float) -> Self:
        """A row whose value must stay below the bar."""
        return cls(measure, value, unit, f"≤ {bar:,.10g}", value <= bar)

    def as_table_line(self) -> str:
        """The row in Markdown."""
        verdict = {None: "", True: "yes", False: "**no**"}[self.met]
        return f"| {self.measure} | {self.value:,.4g} {self.unit} | {self.bar} | {verdict} |"


def print_rows(rows: list[Row]) -> None:
    """Print the one JSON line that `bench/run.py` reads."""
    print(json.dumps([dataclasses.asdict(row) for row in rows]))


def parse_rows(line: str) -> list[Row]:
    """The rows of such a line."""
    return [Row(**fields) for fields in json.loads(line)]
