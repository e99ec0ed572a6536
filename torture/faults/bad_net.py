"""A network that loses packets, carries nothing for a while, or little: clients go on after it."""

import time
from random import Random

from torture.checker import Journal
from torture.network import Network, own_network
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import Server, read_topics, wait_until_served

_CUT_S = 5.0
_BAD_S = 3.0
_GOES_ON_MAX_S = 15.0
"""TCP tries again later and later: about 7 s after a cut of 5 s."""

_SERVED_MAX_S = 1.0


def play(run: Run) -> None:
    """Make the network bad under load, heal it, look; kill, start again, look."""
    with own_network() as network:
        run.each(lambda trial: _trial(run, trial, network))


def _trial(run: Run, trial: Trial, network: Network) -> None:
    journal = Journal()
    folder = trial.folder / "data"
    with Server(folder, count_limit=2000, check_interval=0.02) as server:
        producers = [
            Producer(
                server, journal, b"t%d" % number, Random(trial.random.random()),
                window=4, length_max=5000,
            )
            for number in range(4)
        ]  # fmt: skip
        for producer in producers:
            producer.start()
        producers[0].join(0.2)
        _disturb(trial, network, producers[0])
        network.heal()
        healed_s = time.monotonic()
        served_s = wait_until_served(server)
        run.measure("served_s", served_s)
        trial.expect(is_true=served_s <= _SERVED_MAX_S, otherwise=f"served after {served_s:.2f} s")
        counts = [producer.acked_count for producer in producers]
        for producer, count in zip(producers, counts, strict=True):
            end_s = healed_s + _GOES_ON_MAX_S
            while producer.acked_count == count and not producer.is_gone:
                if time.monotonic() > end_s:
                    break
                producer.join(0.01)
            goes_on = producer.acked_count > count and not producer.is_gone
            trial.expect(is_true=goes_on, otherwise="a connection did not outlive it")
        run.measure("goes_on_s", time.monotonic() - healed_s)
        server.kill()
        for producer in producers:
            producer.join()
    with Server(folder) as server:
        trial.failures += journal.judge(read_topics(server))
    trial.note(acked=journal.acked_count())


def _disturb(trial: Trial, network: Network, producer: Producer) -> None:
    match trial.number % 3:
        case 0:
            network.slow_down("1mbit")
            producer.join(_BAD_S)
            trial.note(slow=1)
        case 1:
            network.cut()
            producer.join(_CUT_S)
            trial.note(cut=1)
        case _:
            network.lose(30)
            producer.join(_BAD_S)
            trial.note(lossy=1)
