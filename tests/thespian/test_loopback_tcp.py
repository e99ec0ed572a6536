"""No socket of a TCP system can be reached from another host, and no process outlives its start.

The sockets are real, and so is the other host: a network namespace with a cable to this one.
"""

import os
import signal
import subprocess
import sys

import pytest

from tests.other_host import other_host
from tests.ports import free_port
from tests.process_tree import descendants, is_running, listeners
from tests.python_process import ROOT, environment
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

DEADLINE_S = 20
CLIENT = """\
import sys
from thespian.actors import ActorSystem
system = ActorSystem("multiprocTCPBase", {"Admin Port": int(sys.argv[1])})
actor = system.createActor("tests.thespian.tcp_program.Family", globalName="family")
print(system.ask(actor, "pid", 10))
"""


@pytest.fixture
def program():
    """A program with a system of six processes, itself included; and its admin's port."""
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.thespian.tcp_program", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        cwd=ROOT,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process, port
        finally:
            process.kill()


def family_of(process):
    """The program, the admin, the logger, the actor and its child."""
    family = [process.pid, *descendants(process.pid)]
    assert len(family) == 5
    return family


def test_every_socket_of_the_system_listens_on_loopback(program):
    process, port = program
    addresses = set().union(*map(listeners, family_of(process)))
    assert ("127.0.0.1", port) in addresses
    assert len(addresses) >= 6, "program, its private context, admin, logger and two actors"
    assert {host for host, _ in addresses} == {"127.0.0.1"}


def test_a_plain_thespian_client_of_this_machine_can_ask(program):
    process, port = program
    run = subprocess.run(
        [sys.executable, "-c", CLIENT, str(port)],
        env=environment(THESPIAN_BASE_IPADDR="127.0.0.1"),
        cwd=ROOT,
        capture_output=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert int(run.stdout) in family_of(process)


def test_a_shut_down_system_leaves_no_process(program):
    process, _ = program
    family = family_of(process)
    process.stdin.close()
    assert process.wait(DEADLINE_S) == 0
    wait_until(lambda: not any(map(is_running, family)), DEADLINE_S)


@pytest.mark.parametrize("who", [0, 1], ids=["the program", "the admin"])
def test_the_system_does_not_outlive_a_kill_of(program, who):
    process, _ = program
    family = family_of(process)
    os.kill(family[who], signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, family[max(who, 1) :])), DEADLINE_S)


def test_another_host_reaches_none_of_its_ports(program):
    process, _ = program
    ports = {port for pid in family_of(process) for _, port in listeners(pid)}
    with other_host() as host:
        assert host.reaches(ports) == set()
