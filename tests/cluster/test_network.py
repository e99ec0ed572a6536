"""The hosts that tests of clusters run on: what is cut is cut, and nothing stays behind."""

import contextlib
import socket
import subprocess
import time
from pathlib import Path

import pytest

from poe.actors import GenServer, LoopSystem
from tests.cluster.network import network
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PORT = 7000
BLOCK = bytes(1 << 16)


@pytest.fixture
def hosts():
    with network(3) as made:
        yield made


def listener(host, address=None):
    with host.namespace.entered():
        return socket.create_server((address or host.address, PORT))


class Post:
    """A socket for packets on each host."""

    def __init__(self, hosts):
        self.sockets = {}
        self.count = 0
        for host in hosts:
            with host.namespace.entered():
                made = socket.socket(type=socket.SOCK_DGRAM)
            made.bind((host.address, PORT))
            made.settimeout(0.1)
            self.sockets[host] = made

    def passes(self, sender, receiver):
        """Whether something that one sends comes to the other."""
        self.count += 1
        sent = b"%d" % self.count
        self.sockets[sender].sendto(sent, (receiver.address, PORT))
        try:
            while self.sockets[receiver].recv(100) != sent:
                pass  # it waited for the address of Ethernet
        except TimeoutError:
            return False
        return True

    def pairs(self):
        """All pairs of numbers of which the first can send to the second."""
        return {
            (sender.number, receiver.number)
            for sender in self.sockets
            for receiver in self.sockets
            if sender is not receiver and self.passes(sender, receiver)
        }

    def wait_for(self, pairs):
        """Wait until these pairs reach one another, and no other ones.

        Who was not found is asked for once a second, and what comes late is taken for lost.
        """
        wait_until(lambda: self.pairs() == pairs)

    def close(self):
        for each in self.sockets.values():
            each.close()


@pytest.fixture
def post(hosts):
    made = Post(hosts.hosts)
    yield made
    made.close()


EVERYBODY = {(1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2)}


def test_each_host_reaches_each_other_one(post):
    post.wait_for(EVERYBODY)


def test_a_host_that_is_cut_off_reaches_nobody_until_it_is_connected(hosts, post):
    hosts.cut_off(hosts.hosts[2])
    post.wait_for({(1, 2), (2, 1)})
    hosts.connect(hosts.hosts[2])
    post.wait_for(EVERYBODY)


def test_a_cut_between_two_hosts_leaves_both_to_the_third(hosts, post):
    post.wait_for(EVERYBODY)  # so that addresses of Ethernet are known
    one, other, _ = hosts.hosts
    hosts.cut_between(one, other)
    post.wait_for(EVERYBODY - {(1, 2), (2, 1)})
    hosts.connect_between(one, other)
    post.wait_for(EVERYBODY)


def test_a_cut_may_be_one_way(hosts, post):
    one, other, _ = hosts.hosts
    hosts.cut_one_way(one, other)
    post.wait_for(EVERYBODY - {(1, 2)})
    hosts.connect_one_way(one, other)
    post.wait_for(EVERYBODY)


def test_the_test_reaches_a_host_that_is_cut_off(hosts):
    host = hosts.hosts[0]
    hosts.cut_off(host)
    with (
        listener(host, host.client_address) as listening,
        socket.create_connection((host.client_address, PORT), 5),
    ):
        listening.accept()[0].close()


def test_a_slow_host_carries_what_it_is_told_to(hosts):
    slow, other, _ = hosts.hosts
    hosts.slow_down(slow, "10mbit")
    assert carried(other, slow, 250_000) > 0.15  # 0.2 s at 10 Mbit/s
    assert carried(slow, other, 250_000) > 0.15
    hosts.speed_up(slow)
    assert min(carried(other, slow, 250_000) for _ in range(5)) < 0.15


def carried(sender, receiver, count):
    """How long so many bytes take from one host to another, in seconds."""
    with listener(receiver) as listening:
        with sender.namespace.entered():
            sending = socket.create_connection((receiver.address, PORT), 5)
        receiving, _ = listening.accept()
    with sending, receiving:
        begun = time.perf_counter()
        sending.setblocking(False)
        left = count
        while left:
            with contextlib.suppress(BlockingIOError):
                sending.send(BLOCK)
            left -= len(receiving.recv(min(left, len(BLOCK))))
        return time.perf_counter() - begun


class Looking(GenServer):
    """Has a thread tell in which network it is."""

    async def handle_call(self, request, caller):
        return await self.run_blocking(of_thread)


def of_thread():
    return Path("/proc/thread-self/ns/net").stat().st_ino


def of_work():
    with LoopSystem() as system:
        looking = system.start(Looking)
        assert looking is not None
        return system.call(looking, "where")


def test_works_of_actors_are_in_the_network_in_which_they_are_begun():
    assert of_work() == of_thread()
    with network(1) as made:
        assert of_work() == made.hub.id
    assert of_work() == of_thread()


def test_nothing_is_left_behind():
    before = here()
    with network(2) as made:
        ids = {each.id for each in (made.hub, *(host.namespace for host in made.hosts))}
        with made.hosts[0].namespace.entered():
            sleeper = subprocess.Popen(["sleep", "60"])
        wait_until(lambda: Path(f"/proc/{sleeper.pid}/ns/net").stat().st_ino in ids)
        sleeper.kill()
        sleeper.wait()
    assert not ids & used()
    assert here() == before


def here():
    """The namespace of this thread, and how many of them are open; other tests may leave files."""
    opened = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself
            opened.append(str(each.readlink()))
    own = of_thread()
    return own, sum(each.startswith("net:") for each in opened)


def used():
    """The namespaces that some thread is in."""
    found = set()
    for each in Path("/proc").glob("[0-9]*/task/*/ns/net"):
        with contextlib.suppress(OSError):  # it has ended
            found.add(each.stat().st_ino)
    return found
