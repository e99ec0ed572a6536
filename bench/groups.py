"""Measures groups of consumers: leases beside Redis' groups, hand-overs, joins, memory, restarts.

Poe and Redis take turns. `groupload.c` and `redisgroup.c` do the same work: six members of one
group take messages, and acknowledge them with the next request.
"""

import json
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import rounds
from bench.build import BUILD, build
from bench.processes import HOST, Running, poe, redis
from bench.row import Sample
from bench.scenarios import CONNECTIONS, Scenario, load
from poe.client import Consumer
from poe.protocol import Done, LeaseRequest, Socket
from poe.protocol import socket as open_socket

COUNT = 1_500_000
SESSION_S = 2
READ = Scenario("read", "read", 1, 100, {})
BATCH = [b"x" * 100] * 1000


def measure_rounds(count: int, *, quick: bool) -> Iterator[list[Sample]]:
    """Begin with empty servers, round by round."""
    missing = build()
    has_redis = shutil.which("redis-server") is not None and "redisgroup" not in missing
    seconds = 0.3 if quick else 1.0
    for _ in range(count):
        samples = []
        found = _poe_leases(seconds, 200_000 if quick else COUNT)
        other = _redis_leases(seconds, 200_000 if quick else COUNT) if has_redis else {}
        for limit, bar in ((100, 3.0), (1, 0.5)):
            name = f"group shared, {limit} per lease"
            samples.append(Sample.at_least(name, found[limit], "msg/s", 0))
            if other:
                ratio = found[limit] / other[limit]
                samples.append(Sample.at_least(f"{name}, beside Redis", ratio, "× Redis", bar))
        ratio = found[100] / found[0]
        samples.append(
            Sample.at_least("group shared, 100 per lease, beside reads", ratio, "× reads", 0.4)
        )
        samples += _ordered(100_000 if quick else 1_000_000)
        samples += _hand_over()
        samples.append(_consumers_hand_over())
        samples.append(_joins(100 if quick else 1000))
        samples.append(_memory(20_000 if quick else 1_000_000))
        samples.append(_restart(50 if quick else 1000))
        yield samples


def _poe_leases(seconds: float, count: int) -> dict[int, float]:
    """Return messages per second by messages per lease; 0 stands for plain reads of 100."""
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder, poe(Path(folder)) as running:
        with open_socket(HOST, running.port) as socket:
            _fill(socket, "t0", count * 3)
        command = [str(BUILD / "groupload"), HOST, str(running.port), str(CONNECTIONS)]
        found = {}
        for limit in (100, 1):
            told = subprocess.check_output([*command, str(limit), str(seconds)])
            found[limit] = float(json.loads(told)["msgs_s"])
        found[0] = float(load("poeload", running.port, READ, seconds)["msgs_s"])
        return found


def _redis_leases(seconds: float, count: int) -> dict[int, float]:
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder, redis(Path(folder)) as running:
        command = [str(BUILD / "redisgroup"), str(running.port)]
        subprocess.check_call([*command, "0", str(count), "100"])
        rates = (100, 1)
        arguments = {each: [str(CONNECTIONS), str(each), str(seconds)] for each in rates}
        return {
            each: float(subprocess.check_output([*command, *arguments[each]])) for each in rates
        }


def _ordered(count: int) -> list[Sample]:
    """A consumer of a group, which commits, beside one that is of none."""
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder, poe(Path(folder)) as running:
        with open_socket(HOST, running.port) as socket:
            _fill(socket, "t0", count)
        url = f"poe://{HOST}:{running.port}"
        options = {"group": "bench", "commit_interval_s": 0.1}
        begun = time.perf_counter()
        with Consumer(url, "t0") as consumer:
            assert sum(map(len, consumer.batches())) == count
        plain_s = time.perf_counter() - begun
        begun = time.perf_counter()
        with Consumer(url, "t0", **options) as consumer:
            assert sum(map(len, consumer.batches())) == count
        ratio = plain_s / (time.perf_counter() - begun)
    return [Sample.at_least("group ordered, 1000 per call", ratio, "× the plain consumer", 0.9)]


def _hand_over() -> list[Sample]:
    """How long a unit is nobody's when its owner leaves, and when it is silent."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder, poe(Path(folder)) as running:
        for way in ("leave", "silence"):
            with (
                open_socket(HOST, running.port) as first,
                open_socket(HOST, running.port) as second,
            ):
                options = {"session_s": SESSION_S}
                named = {"group": way, "mode": "ordered", "topics": ["t"], "options": options}
                one, other = os.urandom(16), os.urandom(16)
                first.control("group_join", member=one, **named)
                joined = second.control("group_join", member=other, **named)
                beat = {"group": way, "member": other, "generation": joined["generation"]}
                told: list[float] = []
                waiting = threading.Thread(target=_until_owner, args=(second, beat, told))
                waiting.start()
                time.sleep(0.2)
                begun = time.perf_counter()
                if way == "leave":
                    first.control("group_leave", group=way, member=one)
                waiting.join()
                found[way] = told[0] - begun
    return [
        Sample.at_most("hand-over after a member leaves", found["leave"] * 1e3, "ms", 50),
        Sample.at_most("hand-over after a member falls silent", found["silence"], "s", 2.5),
    ]


def _consumers_hand_over() -> Sample:
    """How long after a consumer begins to leave another one has what comes next."""
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as folder, poe(Path(folder)) as running:
        options: dict[str, Any] = {"group": "consumers", "follow": True}
        url = f"poe://{HOST}:{running.port}"
        with (
            open_socket(HOST, running.port) as socket,
            Consumer(url, "t", **options) as first,
            Consumer(url, "t", **options) as second,
        ):
            socket.write("t", [b"one"])
            first.receive()
            assert not second.receive(0.2)
            socket.write("t", [b"two"])
            begun = time.perf_counter()
            first.close()
            second.receive()  # "one" again, or with it
            taken_s = time.perf_counter() - begun
    return Sample.at_most("hand-over after a consumer leaves", taken_s * 1e3, "ms", 50)


def _until_owner(socket: Socket, beat: dict[str, object], told: list[float]) -> None:
    while not socket.control("group_heartbeat", owned=[], wait_s=SESSION_S / 3, **beat)["keep"]:
        pass
    told.append(time.perf_counter())


def _joins(count: int) -> Sample:
    """So many members join; how long until each unit has its owner, and knows it."""
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
        poe(Path(folder)) as running,
        open_socket(HOST, running.port) as socket,
    ):
        socket.create_topic("t", partitions=min(count, 1000))
        named = {"group": "many", "mode": "ordered", "topics": ["t"]}
        members = {os.urandom(16): [0, []] for _ in range(count)}
        begun = time.perf_counter()
        for member, known in members.items():
            joined = socket.control("group_join", member=member, **named)
            known[:] = [joined["generation"], joined["units"]]
        owned = 0
        while owned < count:
            owned = 0
            for member, known in members.items():
                beat = {"member": member, "generation": known[0], "owned": known[1]}
                told = socket.control("group_heartbeat", group="many", **beat)
                known[:] = [told["generation"], told["keep"]]
                owned += len(told["keep"]) == 1
        taken_s = time.perf_counter() - begun
    return Sample.at_most(f"{count:,} members join, until each has its unit", taken_s, "s", 2)


def _memory(count: int) -> Sample:
    """What the node takes for messages that are leased, and acknowledged in random order."""
    chance = random.Random(16)
    with (
        tempfile.TemporaryDirectory(prefix="poe-bench-") as folder,
        poe(Path(folder)) as running,
        open_socket(HOST, running.port) as socket,
    ):
        _fill(socket, "t0", count)
        member = os.urandom(16)
        options = {"lease_messages_max": count, "session_s": 600, "holes_max": count}
        named = {"group": "many", "mode": "shared", "topics": ["t0"], "options": options}
        socket.control("group_join", member=member, **named)
        before = running.memory_bytes()
        leases = []
        while (told := socket.lease(LeaseRequest("many", member, 1000, 1 << 20))).lease.id:
            ends = [told.lease.after, *told.records.pointers.tolist()]
            leases += [(told.lease.id, *each) for each in pairwise(ends)]
        chance.shuffle(leases)
        for begin in range(0, len(leases), 1000):
            done = [Done(lease, ((a, b),)) for lease, a, b in leases[begin : begin + 1000]]
            socket.lease(LeaseRequest("many", member, 0, 0, 0.0, done))
        grown = running.memory_bytes() - before
    name = f"{count:,} messages leased, acknowledged at random: the node's memory"
    return Sample.at_most(name, grown / 1e6, "MB more", 64)


def _restart(count: int) -> Sample:
    """How long a start takes until groups that were there are known, and one of them answers."""
    with tempfile.TemporaryDirectory(prefix="poe-bench-") as name:
        folder = Path(name)
        with poe(folder) as running:
            _make_groups(running, count)
        with poe(folder) as running, open_socket(HOST, running.port) as socket:
            begun = time.perf_counter()
            assert len(socket.control("groups")) == count
            socket.control("group_positions", group="g0")
            asked_s = time.perf_counter() - begun
            ready_s = running.ready_after_s
        with tempfile.TemporaryDirectory(prefix="poe-bench-") as none, poe(Path(none)) as empty:
            taken_s = ready_s - empty.ready_after_s + asked_s
    return Sample.at_most(f"{count:,} groups of 100 units: a restart, more", taken_s, "s", 1)


def _make_groups(running: Running, count: int) -> None:
    units = [f"u{number}" for number in range(100)]
    with open_socket(HOST, running.port) as socket:
        for number in range(count):
            member = os.urandom(16)
            named = {"group": f"g{number}", "mode": "ordered", "topics": units}
            told = socket.control("group_join", member=member, **named)
            positions = {unit.encode(): [number + 1, b"note"] for unit in units}
            beat = {"group": f"g{number}", "member": member, "generation": told["generation"]}
            socket.control("group_commit", positions=positions, **beat)


def _fill(socket: Socket, topic: str, count: int) -> None:
    for _ in socket.write_batches(topic, (BATCH for _ in range(count // len(BATCH)))):
        pass


if __name__ == "__main__":
    rounds.main(measure_rounds)
