"""Turns the scenarios, measured on every server round by round, into the first table.

Within a round the servers do a scenario right after one another, and a ratio is the median of the
ratios of the rounds: what slows the machine down for a while does so for both parts of a ratio. The
scenarios take turns within a round, so that it hits one round of each and not all of one.
"""

import sys
from dataclasses import dataclass

from bench.row import Summary
from bench.scenarios import POE, SCENARIOS, SERVERS, Scenario, measure

Round = dict[str, dict[str, float]]
"""Scenario -> server -> messages per second."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rounds of one scenario, in messages per second by server."""

    scenario: Scenario
    rates: dict[str, Summary]

    def ratio(self, server: str) -> Summary | None:
        """Poe's rate over the server's, by round; None where that was not measured."""
        if server not in self.rates:
            return None
        pairs = zip(self.rates[POE].values, self.rates[server].values, strict=True)
        return Summary(tuple(ours / theirs for ours, theirs in pairs))

    def met(self) -> bool:
        """Whether every bar whose server was measured is reached."""
        ratios = {server: self.ratio(server) for server in self.scenario.bars}
        return all(
            ratio is None or ratio.median >= self.scenario.bars[server]
            for server, ratio in ratios.items()
        )

    def as_table_line(self) -> str:
        """The outcome in Markdown."""
        ours = self.rates[POE]
        cells = [self.scenario.name, _in_millions(ours)]
        cells += (self._beside(server) for server in list(SERVERS)[1:])
        bars = ", ".join(f"≥ {bar} × {server}" for server, bar in self.scenario.bars.items())
        cells += (str(len(ours.values)), bars, "yes" if self.met() else "**no**")
        return f"| {' | '.join(cells)} |"

    def _beside(self, server: str) -> str:
        ratio = self.ratio(server)
        if ratio is None:
            return "–"
        rates = _in_millions(self.rates[server])
        return f"{rates}; **{ratio.median:.2f} ×** ({_spread(ratio)})"


def measure_sockets(rounds: int, seconds: float, servers: list[str]) -> list[Outcome]:
    """Run every scenario on every server, round by round."""
    found: list[Round] = []
    for turn in range(rounds):
        print(f"socket, round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
        found.append(measure_round(_order(servers, turn), seconds))
    return [_outcome(scenario, found) for scenario in SCENARIOS]


def measure_round(servers: list[str], seconds: float) -> Round:
    """Every scenario on every server, in this order."""
    return {
        scenario.name: {server: measure(server, scenario, seconds)["msgs_s"] for server in servers}
        for scenario in SCENARIOS
    }


def _order(servers: list[str], turn: int) -> list[str]:
    """Rotated, and every other time backwards, so that neighbours and their order change."""
    first = turn % len(servers)
    order = servers[first:] + servers[:first]
    return order[::-1] if turn % 2 else order


def _outcome(scenario: Scenario, found: list[Round]) -> Outcome:
    of_scenario = [each[scenario.name] for each in found]
    servers = of_scenario[0]
    return Outcome(
        scenario,
        {server: Summary(tuple(each[server] for each in of_scenario)) for server in servers},
    )


def _in_millions(rates: Summary) -> str:
    return f"{rates.median / 1e6:.2f} M ({_spread(Summary(tuple(r / 1e6 for r in rates.values)))})"


def _spread(summary: Summary) -> str:
    return f"{min(summary.values):.2f} … {max(summary.values):.2f}"
