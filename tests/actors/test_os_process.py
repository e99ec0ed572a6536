"""An actor that owns a process: real processes, real signals."""

import math
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from poe.actors import (
    Exit,
    GenServer,
    GetPid,
    LoopSystem,
    OsProcess,
    ProcessStartFailed,
    StartFailed,
)
from poe.errors import InvalidTimeout
from poe.supervision import ChildSpec, Supervisor, SupervisorFlags, WhichChildren, call_supervisor
from tests.process_tree import descendants, is_running
from tests.python_process import environment
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

DEADLINE_S = 20
SLEEP = ["sleep", "600"]
# The shell sleeps in pieces: it obeys a trap only between two commands.
STUBBORN = "trap '' TERM; echo ready >/dev/fd/$OS_PROCESS_READY_FD; while :; do sleep 0.01; done"


def shell(script):
    return ["sh", "-c", script]


def python(script):
    return [sys.executable, "-c", "from poe.actors import *\n" + script]


class Owner(GenServer):
    """Starts a process, and keeps the reason of its end."""

    trap_exits = True

    async def init(self, command, **kwargs):
        self.reasons = []
        self.process = await self.start_link(OsProcess, command, **kwargs)

    def handle_call(self, request, caller):
        return self.process if request == "process" else self.reasons

    def handle_info(self, message):
        if isinstance(message, Exit):
            self.reasons.append(message.reason)


@pytest.fixture
def system(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    running = LoopSystem()
    yield running
    running.shutdown()


@pytest.fixture(params=["pidfd", "thread"])
def way_to_watch(request, monkeypatch):
    """The end of a process is noticed by a pidfd, or by a thread where there is none."""
    if request.param == "thread":
        monkeypatch.delattr(os, "pidfd_open")


def start(system, command, **kwargs):
    """Start a process; return its actor and its pid."""
    ref = system.start(OsProcess, command, **kwargs)
    return ref, system.call(ref, GetPid())


def gone(pid):
    return lambda: not is_running(pid)


@pytest.mark.usefixtures("way_to_watch")
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 0", "normal"),
        ("exit 3", ("exit_status", 3)),
        ("kill -9 $$", ("signal", "SIGKILL")),
        ("kill -TERM $$", ("signal", "SIGTERM")),
        ("kill -40 $$", ("signal", "40")),
    ],
)
def test_the_actor_ends_with_its_process_and_tells_how(system, script, reason):
    owner = system.start(Owner, shell(script))
    wait_until(lambda: system.call(owner, "reasons"), DEADLINE_S)
    assert system.call(owner, "reasons") == [reason]


@pytest.mark.usefixtures("way_to_watch")
def test_the_process_ends_with_its_actor(system):
    ref, pid = start(system, SLEEP)
    system.stop(ref)
    assert not is_running(pid)


def test_a_process_may_have_all_the_time_it_wants(system):
    owner = system.start(Owner, SLEEP, grace_s=math.inf)
    system.stop(system.call(owner, "process"))
    assert system.call(owner, "reasons") == ["normal"]


@pytest.mark.parametrize("option", ["grace_s", "ready_timeout_s"])
@pytest.mark.parametrize("value", [-1, math.nan, "5"])
def test_what_is_no_time_is_refused_before_there_is_a_process(system, option, value):
    with pytest.raises(StartFailed) as caught:
        system.start(OsProcess, SLEEP, **{option: value})
    assert isinstance(caught.value.reason, InvalidTimeout)
    assert option in str(caught.value.reason)


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(system):
    ref, pid = start(system, shell(STUBBORN), ready_timeout_s=DEADLINE_S, grace_s=0.1)
    began_s = time.monotonic()
    system.stop(ref)
    assert time.monotonic() - began_s >= 0.1
    assert not is_running(pid)


@pytest.mark.parametrize("kill", ["the actor", "the system"])
def test_the_process_of_an_actor_that_is_killed_is_killed(system, kill):
    ref, pid = start(system, shell(STUBBORN), ready_timeout_s=DEADLINE_S)
    if kill == "the actor":
        system.exit(ref, "kill")
    else:
        system.shutdown()
    wait_until(gone(pid), DEADLINE_S)


def test_what_the_process_leaves_in_its_group_is_killed(system):
    script = "sleep 600 & echo ready >/dev/fd/$OS_PROCESS_READY_FD; wait"
    ref, pid = start(system, shell(script), ready_timeout_s=DEADLINE_S)
    [sleeper] = descendants(pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not system.is_alive(ref), DEADLINE_S)
    wait_until(gone(sleeper), DEADLINE_S)


def test_a_start_is_complete_when_the_process_says_so(system, tmp_path):
    mark = tmp_path / "mark"
    script = f"open({str(mark)!r}, 'x').close(); report_ready(); signal.pause()"
    _, pid = start(system, python("import signal\n" + script), ready_timeout_s=DEADLINE_S)
    assert mark.exists()
    assert is_running(pid)


@pytest.mark.parametrize(
    ("script", "why", "report"),
    [
        ("report_failure('no disk'); raise SystemExit(2)", ("exit_status", 2), "no disk"),
        ("raise SystemExit(0)", "normal", ""),
    ],
)
def test_a_process_that_ends_before_it_is_ready_fails_the_start(system, script, why, report):
    with pytest.raises(StartFailed) as caught:
        system.start(OsProcess, python(script), ready_timeout_s=DEADLINE_S)
    failure = caught.value.reason
    assert isinstance(failure, ProcessStartFailed)
    assert (failure.why, failure.report) == (why, report)


@pytest.mark.parametrize("command", [["no-such-program"], ["sh", "-c", "\0"], ["sh", 7]])
def test_a_program_that_cannot_be_run_fails_the_start_and_leaves_no_descriptor(system, command):
    with pytest.raises(StartFailed):
        system.start(OsProcess, ["true"], ready_timeout_s=DEADLINE_S)
    before = descriptors()
    with pytest.raises(StartFailed) as caught:
        system.start(OsProcess, command)
    assert isinstance(caught.value.reason, ProcessStartFailed)
    assert descriptors() == before


def descriptors():
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def test_a_process_that_is_not_ready_in_time_is_ended(system):
    before = set(descendants(os.getpid()))
    with pytest.raises(StartFailed, match=r"not ready after 0\.2 s"):
        system.start(OsProcess, SLEEP, ready_timeout_s=0.2)
    assert not set(descendants(os.getpid())) - before


def test_a_program_that_is_not_there_fails_the_start(system):
    with pytest.raises(StartFailed, match="No such file"):
        system.start(OsProcess, ["/no/such/program"])


@pytest.mark.parametrize(
    ("command", "kwargs"),
    [
        (["true", "a\0b"], {}),
        (["sleep", 5], {}),
        ([], {}),
        ("sleep 5", {}),
        (["true"], {"descriptors": (-1,)}),
        (["true"], {"descriptors": (99_999,)}),
    ],
)
def test_a_command_that_cannot_be_run_fails_the_start_and_leaves_no_descriptor(
    system, command, kwargs
):
    with pytest.raises(StartFailed):
        system.start(OsProcess, ["/no/such/program"])
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(StartFailed) as caught:
        system.start(OsProcess, command, **kwargs)
    assert isinstance(caught.value.reason, ProcessStartFailed)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_process_that_says_more_than_that_it_is_ready_is_ready(system):
    script = "printf 'ready\\nready\\n' >/dev/fd/$OS_PROCESS_READY_FD; exec sleep 600"
    _, pid = start(system, shell(script), ready_timeout_s=DEADLINE_S)
    assert is_running(pid)


def test_a_supervisor_restarts_a_process_that_was_killed(system):
    spec = ChildSpec(id="sleep", actor=OsProcess, args=(SLEEP,))
    sup = system.start(Supervisor, SupervisorFlags(intensity=3, period_s=60), [spec])

    def pid():
        [child] = call_supervisor(system, sup, WhichChildren())
        return system.call(child.ref, GetPid())

    killed = pid()
    os.kill(killed, signal.SIGKILL)
    wait_until(gone(killed), DEADLINE_S)
    wait_until(lambda: pid() != killed, DEADLINE_S)
    successor = pid()
    assert is_running(successor)
    system.stop(sup)
    assert not is_running(successor)


def test_no_descriptor_is_left_of_a_process(system):
    start(system, SLEEP)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        system.stop(start(system, SLEEP)[0])
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_process_that_wants_it_ends_when_its_starter_is_killed(system):
    starter = (
        "import signal, sys\n"
        "child = [sys.executable, '-c', 'from poe.actors import *; import signal; '\n"
        "         'end_with_parent(); report_ready(); signal.pause()']\n"
        "LoopSystem().start(OsProcess, child, ready_timeout_s=20)\n"
        "report_ready()\n"
        "signal.pause()"
    )
    _, pid = start(system, python(starter), ready_timeout_s=DEADLINE_S)
    [child] = descendants(pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(gone(child), DEADLINE_S)
