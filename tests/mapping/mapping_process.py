"""A mapping in a process: `python -m tests.mapping.mapping_process URL BATCH SESSION_S`."""

import logging
import signal
import sys

from poe.mapping.action import Dead
from poe.mapping.rule import Route, Rule, Source
from poe.mapping.rule_set import RuleSet
from poe.mapping.runner import Runner
from poe.mapping.station import RunOptions

RULES = RuleSet(
    name="sort",
    source=Source(topics=("numbers",)),
    otherwise=Dead("neither"),
    rules=(
        Rule(id="even", fate=Route(to=("even", "audit")), body={"kind": "even"}),
        Rule(id="third", fate=Route(to=("third",), key="{body.number}"), body={"kind": "third"}),
    ),
)


def main() -> None:
    """Run until SIGTERM."""
    logging.basicConfig(format="%(asctime)s %(process)d %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    options = RunOptions(session_s=float(sys.argv[3]), batch=int(sys.argv[2]))
    with Runner(RULES, sys.argv[1], options) as runner:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        runner.join()


if __name__ == "__main__":
    main()
