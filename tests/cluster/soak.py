"""Random faults for as long as is wanted, on real nodes; every few of them the history is judged.

usage: python -m tests.cluster.soak [--seconds S] [--nodes N] [--seed SEED] [--slower N] [--memory]

With `--memory` queues lie in memory only, and no node is killed: what all holders of a message lose
at once is lost by contract. `--slower` is for busy machines: so many times longer producers wait
between two puts. It ends with the first broken rule, and prints what was done.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.nodes import Nodes, RunningNode, nodes
from tests.cluster.witness import Witness

ROUND_FAULTS = 6
SPEEDS = ((0.05, 0, 20), (0.05, 0.2, 10), (0.02, 0.5, 50), (0.2, 1, 3))
"""Seconds between puts, for which workers hold jobs, and how many they take: some fall behind."""
GROUP = {"session_s": 3, "retry_s": 0}


class Nemesis:
    """Does something bad for a while, and undoes it."""

    def __init__(self, witness: Witness, dice: random.Random, *, kills: bool) -> None:
        self.witness = witness
        self.dice = dice
        self.faults: list[Callable[[], str]] = [
            self.freeze, self.cut_off, self.cut_between, self.cut_one_way, self.slow_down,
        ]  # fmt: skip
        if kills:
            self.faults += [self.kill, self.kill]

    def act(self) -> str:
        """Begin and end a fault, and return what it was."""
        return self.dice.choice(self.faults)()

    def kill(self) -> str:
        """End a node, and start it again."""
        node = self._node()
        self.witness.kill(node, is_kept=True)
        self._wait()
        self.witness.start(node)
        self.witness.nodes.wait_until_whole()
        return f"kill {node.name}"

    def freeze(self) -> str:
        """Let a node do nothing."""
        node = self._node()
        with self.witness.fault(f"freeze {node.name}"):
            node.process.freeze()
            self._wait()
            node.process.thaw()
        return f"freeze {node.name}"

    def cut_off(self) -> str:
        """Pull the cable of a node."""
        node, net = self._node(), self._nodes.net
        with self.witness.fault(f"cut {node.name}"):
            net.cut_off(node.host)
            self._wait()
            net.connect(node.host)
        return f"cut {node.name}"

    def cut_between(self) -> str:
        """Let nothing pass between two nodes."""
        one, other = self.dice.sample(list(self._nodes), 2)
        net = self._nodes.net
        with self.witness.fault(f"cut {one.name} {other.name}"):
            net.cut_between(one.host, other.host)
            self._wait()
            net.connect_between(one.host, other.host)
        return f"cut {one.name}|{other.name}"

    def cut_one_way(self) -> str:
        """Lose what one node sends to another."""
        one, other = self.dice.sample(list(self._nodes), 2)
        net = self._nodes.net
        with self.witness.fault(f"cut {one.name} to {other.name}"):
            net.cut_one_way(one.host, other.host)
            self._wait()
            net.connect_one_way(one.host, other.host)
        return f"cut {one.name}>{other.name}"

    def slow_down(self) -> str:
        """Have a node on a slow link."""
        node, net = self._node(), self._nodes.net
        with self.witness.fault(f"slow {node.name}"):
            net.slow_down(node.host, "1mbit")
            self._wait()
            net.speed_up(node.host)
        return f"slow {node.name}"

    @property
    def _nodes(self) -> Nodes:
        return self.witness.nodes

    def _node(self) -> RunningNode:
        return self.dice.choice(list(self._nodes))

    def _wait(self) -> None:
        """Let it last; sometimes for less than a peer may be silent."""
        time.sleep(self.dice.choice((0.3, 1, 2.5, 5)))


def run_round(
    cluster: Nodes, number: int, dice: random.Random, *, slower: float, kills: bool
) -> None:
    """Have clients, faults among them, and a judge in the end; each round has a queue of its own.

    Raises:
        AssertionError: a rule is broken, or something is never done.
    """
    witness = Witness(cluster, copies=2, group_options=GROUP)
    witness.queue, witness.group = f"jobs{number}", f"workers{number}"
    witness.make_queue(cluster["a"], persist=kills)
    told = []
    try:
        pause_s, hold_s, limit = dice.choice(SPEEDS)
        for node in cluster:
            witness.produce(node, pause_s=slower * pause_s)
            witness.work(node, limit, hold_s)
        nemesis = Nemesis(witness, dice, kills=kills)
        for _ in range(ROUND_FAULTS):
            told.append(nemesis.act())
            time.sleep(dice.random() * 2)
        cluster.wait_until_whole()
        witness.end_puts()
        witness.drain(60)
        witness.wait_until_equal(30)
        witness.judge()
    finally:
        handed = [each for event in witness.history().of("handed") for each in event.messages]
        print(f"round {number}: {', '.join(told)}: {len(handed)} handed,", end=" ")
        print(f"{len(handed) - len(set(handed))} twice, {len(witness.open())} open", flush=True)
        witness.stop()


def main() -> None:
    """Run until the time is over, or a rule is broken."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--slower", type=float, default=1)
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    print(f"--seed {arguments.seed}", flush=True)
    dice = random.Random(arguments.seed)
    end_s = time.monotonic() + arguments.seconds
    with (
        tempfile.TemporaryDirectory(prefix="poe-soak-") as folder,
        nodes(Path(folder), arguments.nodes) as cluster,
    ):
        number = 0
        while time.monotonic() < end_s:
            number += 1
            kills = not arguments.memory
            run_round(cluster, number, dice, slower=arguments.slower, kills=kills)
            sizes = [int(Path(f"/proc/{node.process.pid}/statm").read_text().split()[1]) * 4096
                     for node in cluster]  # fmt: skip
            print("memory:", *(f"{size / 1e6:.0f}" for size in sizes), "MB", flush=True)


if __name__ == "__main__":
    main()
