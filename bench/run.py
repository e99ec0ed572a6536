"""Measures Poe beside `limit`, Redis Streams and NATS JetStream, and prints where it stands.

All servers do the same work in one run and take turns, round by round, so that a machine that
speeds up or slows down does so for all of them; a figure is the median of the rounds, a bar is a
ratio within the run. Then the scripts for what a socket does not show run one by one. TMPDIR
chooses the file system that is written to.

usage: python -m bench.run [--quick] [--rounds N] [--seconds S] [--json FILE] [--write-docs]
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import load, processes
from bench.build import BUILD, ROOT, build
from bench.processes import HOST
from bench.row import Row, parse_rows
from bench.scenarios import CONNECTIONS, POE, SCENARIOS, SERVERS, Scenario, measure

DOCUMENT = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- begin: make bench -->", "<!-- end: make bench -->"
SCRIPTS = ("mixed", "inprocess", "actors", "memory", "connections", "startup")
MIXED_SIZE_MAX = 4096


@dataclass(frozen=True, slots=True)
class Outcome:
    """The medians of one scenario, in messages per second by server."""

    scenario: Scenario
    rates: dict[str, float]

    def ratio(self, server: str) -> float | None:
        """Poe's rate over the server's; None where that was not measured."""
        return self.rates[POE] / self.rates[server] if server in self.rates else None

    def met(self) -> bool:
        """Whether every bar whose server was measured is reached."""
        ratios = {server: self.ratio(server) for server in self.scenario.bars}
        return all(
            ratio is None or ratio >= self.scenario.bars[server] for server, ratio in ratios.items()
        )

    def as_table_line(self) -> str:
        """The outcome in Markdown."""
        cells = [self.scenario.name, f"{self.rates[POE] / 1e6:.2f} M"]
        for server in list(SERVERS)[1:]:
            ratio = self.ratio(server)
            cells.append(
                "–" if ratio is None else f"{self.rates[server] / 1e6:.2f} M ({ratio:.2f} ×)"
            )
        bars = ", ".join(f"≥ {bar} × {server}" for server, bar in self.scenario.bars.items())
        return f"| {' | '.join([*cells, bars, 'yes' if self.met() else '**no**'])} |"


def measure_sockets(rounds: int, seconds: float) -> list[Outcome]:
    """Run every scenario on every server, turn by turn."""
    servers = [server for server in SERVERS if processes.installed(server)]
    outcomes = []
    for scenario in SCENARIOS:
        samples: dict[str, list[float]] = {server: [] for server in servers}
        for turn in range(rounds):
            # Rotated, so that no server always runs right after the same neighbour.
            first = turn % len(servers)
            for server in servers[first:] + servers[:first]:
                samples[server].append(measure(server, scenario, seconds))
        rates = {server: statistics.median(values) for server, values in samples.items()}
        outcomes.append(Outcome(scenario, rates))
        print(outcomes[-1].as_table_line(), flush=True)
    return outcomes


def measure_mixed_sizes(rounds: int, seconds: float) -> list[Row]:
    """Bytes per second with messages of 1 B to 4 KB against messages of their mean size."""
    ratios = []
    for _ in range(rounds):
        rates = {}
        for mode, size in (("write", MIXED_SIZE_MAX // 2), ("write-mixed", MIXED_SIZE_MAX)):
            with (
                tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
                processes.poe(Path(folder)) as running,
            ):
                work = load.Load(HOST, running.port, mode, CONNECTIONS, 1, 100, size, seconds)
                rates[mode] = float(str(load.run(work)["MB_s"]))
        ratios.append(rates["write-mixed"] / rates["write"])
    measure_name = "write of mixed sizes 1 B – 4 KB, bytes per second"
    return [Row.at_least(measure_name, statistics.median(ratios), "× equal sizes", 0.6)]


def run_script(name: str, *, quick: bool) -> list[Row]:
    """Run one of the other scripts in a process of its own and read its rows."""
    command = [sys.executable, "-m", f"bench.{name}", *(["--quick"] if quick else [])]
    run = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if run.returncode:
        print(f"bench.{name} failed:\n{run.stderr}", file=sys.stderr)
        return [Row(f"bench.{name}", float("nan"), "failed", "runs", met=False)]
    return parse_rows(run.stdout.splitlines()[-1])


def as_document(outcomes: list[Outcome], rows: list[Row], rounds: int, seconds: float) -> str:
    """Both tables, and how they came about."""
    lines = [
        f"Measured on {time.strftime('%Y-%m-%d')} by `make bench`: {machine()};",
        f"medians of {rounds} rounds of {seconds:g} s.",
        "",
        f"Socket, {CONNECTIONS} connections, messages of 100 bytes, messages per second.",
        "In brackets: Poe's rate over that server's.",
        "",
        "| measure | Poe | limit | Redis Streams | NATS JetStream | bar | met |",
        "|---|---|---|---|---|---|---|",
        *(outcome.as_table_line() for outcome in outcomes),
        "",
        "| measure | value | bar | met |",
        "|---|---|---|---|",
        *(row.as_table_line() for row in rows),
    ]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """What the figures depend on."""
    cpus = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    model = cpus[0] if cpus else platform.machine()
    return (
        f"{len(cpus)} × {model}, Linux {platform.release()}, Python {platform.python_version()},"
        " server and load generator on the same machine"
    )


def write_document(tables: str) -> None:
    """Replace what lies between the markers of docs/benchmarks.md."""
    text = DOCUMENT.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    DOCUMENT.write_text(f"{head}{BEGIN}\n\n{tables}\n{END}{tail}")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short round: a look, no figure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement")
    parser.add_argument("--only", choices=("socket", *SCRIPTS), help="one part")
    parser.add_argument("--json", type=Path, default=BUILD / "result.json")
    parser.add_argument("--write-docs", action="store_true", help="refresh docs/benchmarks.md")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds, arguments.seconds = 1, 0.5
    return arguments


def main() -> int:
    """Run, print, write."""
    arguments = parse_arguments()
    build()
    wanted = {arguments.only} if arguments.only else {"socket", *SCRIPTS}
    outcomes = measure_sockets(arguments.rounds, arguments.seconds) if "socket" in wanted else []
    rows: list[Row] = []
    for script in SCRIPTS:
        if script in wanted and script == "mixed":
            rows += measure_mixed_sizes(arguments.rounds, arguments.seconds)
        elif script in wanted:
            rows += run_script(script, quick=arguments.quick)
    tables = as_document(outcomes, rows, arguments.rounds, arguments.seconds)
    print(tables)
    result = {
        "machine": machine(),
        "socket": [
            {"measure": each.scenario.name, "rates": each.rates, "met": each.met()}
            for each in outcomes
        ],
        "rows": [asdict(row) for row in rows],
    }
    arguments.json.write_text(json.dumps(result, indent=2) + "\n")
    if arguments.write_docs:
        write_document(tables)
    all_met = all(each.met() for each in outcomes) and all(row.met is not False for row in rows)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
