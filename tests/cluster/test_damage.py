"""What happens to the disk or the clock of one node costs no message that others hold."""

import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.clusters import finish, go_on, set_going
from tests.cluster.network import network
from tests.cluster.nodes import Nodes
from tests.cluster.witness import Witness
from tests.small_disk import small_disk

pytest.importorskip("zenoh")
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]

DISK_BYTES = 8 << 20


def test_a_node_whose_disk_is_full_holds_no_more_and_the_others_do(tmp_path):
    with (
        network(3) as net,
        small_disk(tmp_path / "small", DISK_BYTES) as disk,
    ):
        cluster = Nodes.joined(net, tmp_path, ["--min-free", "0"])
        cluster["c"].folder = disk.folder / "c"
        with cluster.running():
            witness = Witness(cluster, copies=2)
            witness.make_queue(cluster["a"], persist=True)
            try:
                set_going(witness)
                disk.fill()
                go_on(witness, "ab")
                assert witness.put(cluster["c"]) in {"ok", "under", "busy"}
                disk.free()
                go_on(witness, "abc")
                finish(witness)
            finally:
                witness.stop()


def test_a_damaged_file_costs_its_node_what_it_held_and_nobody_else_anything(make_witness):
    witness = make_witness(persist=True)
    cluster = witness.nodes
    for _ in range(20):
        assert witness.put(cluster["a"], 10, copies=3) == "ok"
    c = cluster["c"]
    c.stop()
    witness.note("kill", c, state="kept")
    (data,) = c.folder.glob("topics/poe.queue.jobs/*_data")
    content = bytearray(data.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(64)
    data.write_bytes(content)
    witness.start(c)
    cluster.wait_until_whole()
    for node in cluster:
        witness.work(node)
    finish(witness)
    assert "corrupt" in c.log.read_text().lower() or "damaged" in c.log.read_text().lower()


@pytest.fixture
def clock(tmp_path):
    """A clock of the time of day, for processes that are started with its variables."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc, for a clock that jumps")
    return JumpingClock(tmp_path)


class JumpingClock:
    """Shows the time of day and an offset, which may change at any time."""

    def __init__(self, folder):
        library, self._file = folder / "clock_jump.so", folder / "clock_jump"
        source = Path(__file__).with_name("clock_jump.c")
        command = ["gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", library, source]
        subprocess.run([*command, "-ldl"], check=True)
        self._file.write_bytes(bytes(8))
        self.variables = {"LD_PRELOAD": str(library), "CLOCK_JUMP": str(self._file)}

    def jump(self, hours):
        with self._file.open("r+b") as file:  # it is mapped: never another file of that name
            file.write(struct.pack("q", hours * 3600 * 10**9))


def test_a_clock_jumps_for_who_has_it(clock):
    code = "import time; print(time.time()); input(); print(time.time(), time.monotonic())"
    program = subprocess.Popen(
        [sys.executable, "-uc", code], env={**os.environ, **clock.variables}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert program.stdout is not None
    before = float(program.stdout.readline())
    clock.jump(-2)
    told, _ = program.communicate("\n", timeout=10)
    after, monotonic = map(float, told.split())
    assert -7201 < after - before < -7100
    assert abs(monotonic - time.monotonic()) < 60


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_jumps_costs_nothing(tmp_path, clock, hours):
    with network(3) as net:
        cluster = Nodes.joined(net, tmp_path, [])
        cluster["a"].variables = clock.variables
        with cluster.running():
            witness = Witness(cluster, copies=2)
            witness.make_queue(cluster["a"])
            try:
                set_going(witness)
                witness.note("jump", cluster["a"])
                clock.jump(hours)
                go_on(witness, "abc")
                assert [node.live() for node in cluster] == [set("abc")] * 3
                finish(witness)
            finally:
                witness.stop()
