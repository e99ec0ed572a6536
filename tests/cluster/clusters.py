"""Three nodes, a queue between them, and clients at each; what many tests of faults begin with."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.nodes import nodes
from tests.cluster.witness import Witness
from tests.waiting import wait_until

GROUP = {"session_s": 3, "retry_s": 0}
MakeWitness = Callable[..., Witness]


@pytest.fixture
def make_witness(tmp_path: Path) -> Iterator[MakeWitness]:
    """Start three nodes with these options, and a queue of two copies between them."""
    with ExitStack() as stack:

        def make(*options: str, **properties: Any) -> Witness:
            cluster = stack.enter_context(nodes(tmp_path, 3, *options))
            witness = Witness(cluster, copies=2, group_options=GROUP)
            stack.callback(witness.stop)
            witness.make_queue(cluster["a"], **properties)
            return witness

        yield make


@pytest.fixture
def witness(make_witness: MakeWitness) -> Witness:
    """Three nodes, and a queue."""
    return make_witness()


def set_going(witness: Witness) -> None:
    """Have clients at all nodes put and take jobs, and wait until all are at it."""
    for node in witness.nodes:
        witness.produce(node)
        witness.work(node)
    go_on(witness, "abc")


def go_on(witness: Witness, names: str) -> None:
    """Wait until puts are answered with two copies, and jobs done, at each of some nodes."""

    def tally() -> dict[str, tuple[int, int]]:
        history = witness.history()
        puts = [event.node for event in history.of("answered") if event.state == "ok"]
        acks = [event.node for event in history.of("acked")]
        return {name: (puts.count(name), acks.count(name)) for name in names}

    before = tally()
    wait_until(
        lambda: all(
            puts > before[name][0] and acks > before[name][1]
            for name, (puts, acks) in tally().items()
        ),
        40,
    )


def finish(witness: Witness) -> None:
    """Let all jobs be done, wait until all nodes know the same, and judge."""
    witness.nodes.wait_until_whole()
    witness.end_puts()
    witness.drain()
    witness.wait_until_equal()
    witness.judge()
