"""A message that kills its worker, among many: it alone is given up, and soon."""

import math
import os
import random
import signal
import subprocess
import sys
from collections import Counter

import pytest

from poe import protocol
from poe.client.group.dead_letter import DeadLetter
from tests.client.consumers import url
from tests.client.group.poisoned_worker import ATTEMPTS_MAX, BATCH, GROUP, POISON, TOPIC
from tests.python_process import ROOT, environment
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

COUNT = 10_000


@pytest.fixture(params=["queue", "worker"])
def journal(request, node, tmp_path):
    """The journal of a worker, which runs from here on."""
    journal = tmp_path / "journal"
    command = [sys.executable, "-m", "tests.client.group.poisoned_worker", request.param]
    worker = subprocess.Popen(
        [*command, url(node), str(journal)], cwd=ROOT, env=environment(), start_new_session=True
    )
    yield journal
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait(10)


def left_count(node):
    groups = [each["group"] for each in node.control("groups")]
    lag = node.control("group_lag", group=GROUP) if GROUP in groups else {}
    return lag[TOPIC.encode()]["messages"] if lag else COUNT


def test_one_message_of_ten_thousand_is_given_up_and_no_other_for_it(node, journal):
    messages = [b"%d" % number for number in range(COUNT)]
    place = random.Random(16).randrange(COUNT)
    messages[place] = POISON
    node.put_many(TOPIC, messages)
    wait_until(lambda: not left_count(node), 60)
    with protocol.socket(*node.address) as socket:
        letters = [DeadLetter.of(letter) for _, letter in socket.read(f"{GROUP}.dead", 0, COUNT)]
    assert [(each.message, each.attempts) for each in letters] == [(POISON, ATTEMPTS_MAX)]
    counts = Counter(journal.read_bytes().split())
    assert counts.keys() == set(messages)
    halvings_max = int(math.log2(BATCH)) + 1
    assert ATTEMPTS_MAX <= counts.pop(POISON) <= ATTEMPTS_MAX + halvings_max
    redelivered = {message: count - 1 for message, count in counts.items() if count > 1}
    assert max(redelivered.values(), default=0) <= halvings_max
    assert len(redelivered) < 2 * BATCH  # those under lease when it was first killed
