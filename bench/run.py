"""Measures Poe beside `limit`, Redis Streams and NATS JetStream, and prints where it stands.

Every figure is the median of the rounds, told with the least and the greatest of them; a bar is a
ratio within the run, or a number. First come the servers by socket, which take turns, then the
scripts for what a socket does not show, one by one. TMPDIR chooses the file system that is written
to.

usage: python -m bench.run [--quick] [--rounds N] [--seconds S] [--only PART] [--json FILE]
                           [--write-docs]
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.build import BUILD, ROOT, build
from bench.processes import interrupt_once, started
from bench.rounds import ROUNDS, parse_round
from bench.row import Row, Sample, as_table, rows_of
from bench.scenarios import CONNECTIONS, SERVERS, left_out
from bench.sockets import Outcome, measure_sockets

DOCUMENT = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- begin: make bench -->", "<!-- end: make bench -->"
SCRIPTS = (
    "latency",
    "mixed",
    "fsync",
    "inprocess",
    "actors",
    "supervision",
    "memory",
    "connections",
    "startup",
    "large",
    "producer",
    "groups",
    "mapping",
    "security",
    "fabric",
    "cluster",
    "replicated",
    "mapping_runs",
    "console",
)


@dataclass(frozen=True, slots=True)
class Result:
    """All that one run measured."""

    outcomes: list[Outcome]
    rows: list[Row]
    seconds: float
    """Per measurement by socket."""

    missing: str
    """What could not be measured, as one line; empty if nothing."""

    def met(self) -> bool:
        """Whether every bar is reached."""
        return all(each.met() for each in self.outcomes) and all(row.met for row in self.rows)

    def as_document(self) -> str:
        """Both tables, and how they came about."""
        lines = [
            f"Measured on {time.strftime('%Y-%m-%d')} on {commit()} by `make bench`: {machine()},",
            "server and load generator on the same machine.",
        ]
        if self.missing:
            lines.append(self.missing)
        if self.outcomes:
            lines += (
                "",
                f"Socket, {CONNECTIONS} connections, messages of 100 bytes, {self.seconds:g} s per",
                "measurement; millions of messages per second: median (least … greatest round).",
                "In bold: Poe's rate over that server's, the median of the ratios of the rounds.",
                "",
                "| measure | Poe | limit | Redis Streams | NATS JetStream | rounds | bar | met |",
                "|---|---|---|---|---|---|---|---|",
                *(outcome.as_table_line() for outcome in self.outcomes),
            )
        if self.rows:
            lines += (
                "",
                *as_table(self.rows),
            )
        return "\n".join(lines) + "\n"

    def as_json(self) -> str:
        """Every round of every figure."""
        result = {
            "machine": machine(),
            "missing": self.missing,
            "socket": [
                {
                    "measure": each.scenario.name,
                    "rates": {server: list(rates.values) for server, rates in each.rates.items()},
                    "met": each.met(),
                }
                for each in self.outcomes
            ],
            "rows": [asdict(row) for row in self.rows],
        }
        return json.dumps(result, indent=2) + "\n"


def run_script(name: str, rounds: int, *, quick: bool) -> list[Row]:
    """Run one of the other scripts in a process of its own and read its rounds."""
    command = [sys.executable, "-m", f"bench.{name}", "--rounds", str(rounds)]
    found: list[list[Sample]] = []
    command += ["--quick"] * quick
    with (
        tempfile.TemporaryFile("w+") as errors,
        started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        for line in process.stdout or ():
            found.append(parse_round(line))
            print(f"{name}, round {len(found)} of {rounds}", file=sys.stderr, flush=True)
        failed = process.wait() != 0
        rows = rows_of(found)
        if failed:
            errors.seek(0)
            print(f"bench.{name} failed:\n{errors.read()}", file=sys.stderr)
            rows.append(Row.failed(f"bench.{name}"))
    return rows


def commit() -> str:
    """Return which commit is measured, and whether it was changed, as far as that is known."""
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=8", "--dirty=, changed,"]
    try:
        found = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return "an unknown commit"
    return found.stdout.strip() or "an unknown commit"


def machine() -> str:
    """What the figures depend on."""
    cpus = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    model = cpus[0] if cpus else platform.machine()
    return f"{len(cpus)} × {model}, Linux {platform.release()}, Python {platform.python_version()}"


def write_document(tables: str, document: Path = DOCUMENT) -> None:
    """Replace what lies between the markers of a document."""
    text = document.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    document.write_text(f"{head}{BEGIN}\n\n{tables}\n{END}{tail}")


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short round: a look, no figure")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=1.0, help="per measurement by socket")
    parser.add_argument("--only", choices=("socket", *SCRIPTS), help="one part")
    parser.add_argument("--json", type=Path, default=BUILD / "result.json")
    parser.add_argument("--write-docs", action="store_true", help="refresh docs/benchmarks.md")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds <= 0:
        parser.error("--rounds takes 1 or more, --seconds more than 0")
    if arguments.write_docs and (arguments.only or arguments.quick):
        parser.error("--write-docs replaces both tables: leave out --only and --quick")
    if arguments.quick:
        arguments.rounds, arguments.seconds = 1, 0.5
    return arguments


def measure(arguments: argparse.Namespace) -> Result:
    """All parts that are asked for."""
    not_built = build()
    without = left_out(not_built)
    missing = missing_line(not_built, without)
    if missing:
        print(missing, file=sys.stderr)
    wanted = {arguments.only} if arguments.only else {"socket", *SCRIPTS}
    outcomes: list[Outcome] = []
    if "socket" in wanted:
        servers = [server for server in SERVERS if server not in without]
        outcomes = measure_sockets(arguments.rounds, arguments.seconds, servers)
    rows: list[Row] = []
    for script in SCRIPTS:
        if script in wanted:
            rows += run_script(script, arguments.rounds, quick=arguments.quick)
    return Result(outcomes, rows, arguments.seconds, missing)


def missing_line(not_built: dict[str, str], without: dict[str, str]) -> str:
    """What is left out or replaced, and why; empty if everything is here."""
    parts = [f"{server} ({reason})" for server, reason in without.items()]
    line = f"Left out: {', '.join(parts)}." if parts else ""
    if "poeload_tls" in not_built:
        line += f" No rates by TLS ({not_built['poeload_tls']})."
    if "poeload" in not_built:
        line += f" Poe is loaded by bench/load.py ({not_built['poeload']})."
    return line.strip()


def main() -> int:
    """Run, print, write."""
    arguments = parse_arguments()
    interrupt_once()
    try:
        result = measure(arguments)
    except KeyboardInterrupt:
        print("interrupted; every server that was started has ended", file=sys.stderr)
        return 130
    document = result.as_document()
    print(document)
    arguments.json.write_text(result.as_json())
    if arguments.write_docs:
        write_document(document)
    return 0 if result.met() else 1


if __name__ == "__main__":
    sys.exit(main())
