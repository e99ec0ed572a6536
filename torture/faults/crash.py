"""The server is killed under load, at any moment; it restarts by itself and has everything."""

from random import Random

from torture.checker import Journal
from torture.producer import Producer
from torture.scenario import Run, Trial
from torture.server import Server, read_topics

_TOPICS = (b"one", b"two", b"three")
_TRIALS_PER_FOLDER = 20


def play(run: Run, ack: str = "flushed") -> None:
    """Kill; start again, check, and go on with the same folder, some times."""
    journal = Journal()
    server: Server | None = None
    life = 0

    def kill_once(trial: Trial) -> None:
        nonlocal server, journal, life
        if server is None or trial.number % _TRIALS_PER_FOLDER == 0:
            if server is not None:
                server.kill()
            life, journal = trial.number, Journal()
            server = _start(run, life, ack)
        _load_and_kill(server, journal, trial)
        server = _start(run, life, ack)
        run.measure("ready_s", server.start_s)
        trial.failures += journal.judge(read_topics(server))

    try:
        run.each(kill_once)
    finally:
        if server is not None:
            server.kill()


def _start(run: Run, life: int, ack: str) -> Server:
    # Small segments, so that kills hit rotation and hibernation, too.
    return Server(
        run.folder / f"life-{life}",
        ack=ack,
        count_limit=2000,
        check_interval=0.02,
        worker_timeout=0.05,
    )


def _load_and_kill(server: Server, journal: Journal, trial: Trial) -> None:
    random = trial.random
    acked_before = journal.acked_count()
    producers = [
        Producer(server, journal, topic, Random(random.random()))
        for topic in _TOPICS[: random.randint(1, 3)]
    ]
    for producer in producers:
        producer.start()
    producers[0].join(random.choice([0.002, 0.02, 0.1]) * random.random())
    server.kill()
    for producer in producers:
        producer.join()
    trial.note(kills=1, acked=journal.acked_count() - acked_before)
