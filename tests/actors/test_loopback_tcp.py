"""No socket of a TCP system can be reached from another host, and no process outlives its start.

The sockets are real, and so is the other host: a network namespace with a cable to this one.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest

from tests.process_tree import descendants, is_running, listeners
from tests.python_process import ROOT, environment
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

DEADLINE_S = 20
CLIENT = """\
import sys
from thespian.actors import ActorSystem
system = ActorSystem("multiprocTCPBase", {"Admin Port": int(sys.argv[1])})
actor = system.createActor("tests.actors.tcp_program.Family", globalName="family")
print(system.ask(actor, "pid", 10))
"""
TRY_EACH = """\
import socket, sys
host, *ports = sys.argv[1:]
for port in ports:
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
        print(port)
    except OSError:
        pass
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@pytest.fixture
def program():
    """A program with a system of six processes, itself included; and its admin's port."""
    port = free_port()
    with subprocess.Popen(
        [sys.executable, "-m", "tests.actors.tcp_program", str(port)],
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


# ---- from another host -------------------------------------------------------------------------


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=DEADLINE_S)


@pytest.fixture
def cable():
    """A network namespace with a cable to this one: its name, and our address at our end."""
    if shutil.which("ip") is None:
        pytest.skip("needs `ip` of iproute2")
    name = f"poe{os.getpid()}"
    ours, theirs = "198.18.77.1", "198.18.77.2"
    try:
        ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not permitted: {error.stderr.decode().strip()}")
    try:
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", f"{ours}/30", "dev", name)
        ip("link", "set", name, "up")
        ip("-n", name, "address", "add", f"{theirs}/30", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        yield name, ours
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "delete", name)
        ip("netns", "delete", name)


def test_another_host_reaches_none_of_its_ports(program, cable):
    process, _ = program
    namespace, host = cable
    ports = {port for pid in family_of(process) for _, port in listeners(pid)}
    # Without a listener that can be reached, the test would pass with the cable cut.
    with socket.create_server(("0.0.0.0", 0)) as control:
        control_port = control.getsockname()[1]
        run = subprocess.run(
            ["ip", "netns", "exec", namespace, sys.executable, "-c", TRY_EACH, host,
             *map(str, [*ports, control_port])],
            capture_output=True, timeout=60, check=True,
        )  # fmt: skip
    assert run.stdout.split() == [str(control_port).encode()]
