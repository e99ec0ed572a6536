"""Supervision of real processes: children are killed by the test, and by their supervisors."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from poe.actors import Exit
from poe.errors import ActorDead, OptionError, StartFailed
from poe.supervision import (
    ChildKind,
    ChildSpec,
    Strategy,
    Supervisor,
    SupervisorFlags,
    TerminateChild,
)
from poe.thespian import HostedSystem
from tests.bases.actors import Doer, Stage, log_of, pid_of, spec, specs
from tests.other_host import other_host
from tests.process_tree import is_running, listeners
from tests.waiting import wait_until

NOTICE_MAX_S = 4.5
"""Generous: a kill is noticed within some 50 ms, by Thespian alone only after 5 s."""


@pytest.fixture
def stage(processes):
    return Stage(processes)


def processes_of(system):
    """Return the processes of a whole system, Thespian's own ones included."""
    return processes_of_group(os.getpgid(system.pid_of(system.start(Doer))))


def processes_of_group(group):
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if is_running(pid) and _group_of(pid) == group]


def _group_of(pid):
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def kill(system, ref):
    pid = system.pid_of(ref)
    os.kill(pid, signal.SIGKILL)
    return pid


@pytest.mark.slow
def test_each_actor_is_a_process_of_its_own(processes):
    refs = [processes.start(Doer) for _ in range(3)]
    pids = [processes.call(ref, (pid_of,)) for ref in refs]
    assert pids == [processes.pid_of(ref) for ref in refs]
    assert len({os.getpid(), *pids}) == 4


@pytest.mark.slow
def test_killed_child_is_restarted_at_once_in_a_new_process(stage):
    system = stage.system
    supervisor = system.start(Supervisor, SupervisorFlags(intensity=10), specs("ab"))
    stage.take()
    before = stage.refs(supervisor)
    started_s = time.monotonic()
    killed = kill(system, before["a"])
    stage.wait_for(("start", "a"))
    assert time.monotonic() - started_s < NOTICE_MAX_S
    after = stage.refs(supervisor)
    assert system.call(after["a"], "pid") != killed
    assert after["b"] is before["b"]


@pytest.mark.slow
def test_call_under_way_to_a_killed_actor_fails(processes):
    one, other = processes.start(Doer, trap_exits=True), processes.start(Doer)
    processes.call(one, (link_to, other))
    kill(processes, other)
    with pytest.raises(ActorDead):
        processes.call(other, (pid_of,), timeout_s=20)
    wait_until(lambda: processes.call(one, (log_of,)) == [Exit(other, "killed")])


def link_to(doer, ref):
    doer.link(ref)


def kill_self(doer):
    del doer
    os.kill(os.getpid(), signal.SIGKILL)


def test_process_that_dies_in_init_fails_the_start(processes):
    with pytest.raises(StartFailed) as caught:
        processes.start(Doer, kill_self)
    assert caught.value.reason == "killed"


class DiesAtOnce(Doer):
    """Takes its process along before it is an actor, as an extension that is imported there may."""

    def __init__(self):
        os._exit(1)


# Thespian's sockets may take what is sent a turn later, and then it is lost with the process.
@pytest.mark.parametrize("processes", ["multiprocQueueBase"], indirect=True)
def test_process_that_dies_before_its_actor_is_made_fails_the_start(processes):
    with pytest.raises(StartFailed):
        processes.start(DiesAtOnce)


@pytest.mark.slow
def test_killed_inner_supervisor_takes_its_children_along_and_is_restarted(stage):
    system = stage.system
    inner = ChildSpec(
        id="inner",
        actor=Supervisor,
        args=(SupervisorFlags(), specs("ab", trap=False)),
        kind=ChildKind.SUPERVISOR,
    )
    outer = system.start(Supervisor, SupervisorFlags(), [inner])
    stage.take()
    first = stage.refs(outer)["inner"]
    orphans = [system.pid_of(ref) for ref in stage.refs(first).values()]
    kill(system, first)
    stage.wait_for(("start", "a"), ("start", "b"))
    wait_until(lambda: not any(is_running(pid) for pid in orphans), 20)
    assert stage.refs(outer)["inner"] is not first


@pytest.mark.slow
def test_busy_orphan_is_ended_although_it_reads_no_messages(stage):
    system = stage.system
    supervisor = system.start(Supervisor, SupervisorFlags(), specs("a"))
    child = stage.refs(supervisor)["a"]
    system.cast(child, ("spin",))
    kill(system, supervisor)
    wait_until(lambda: not is_running(system.pid_of(child)), 20)


@pytest.mark.slow
def test_busy_child_is_killed_when_its_time_is_up(stage):
    system = stage.system
    children = [spec("a"), spec("busy", shutdown_s=0.1)]
    supervisor = system.start(Supervisor, SupervisorFlags(), children)
    busy = stage.refs(supervisor)["busy"]
    system.cast(busy, ("spin",))
    stage.ask(supervisor, TerminateChild("busy"))
    assert not is_running(system.pid_of(busy))
    assert stage.refs(supervisor)["busy"] is None


@pytest.mark.slow
def test_child_that_spins_in_its_clean_up_is_killed_too(stage):
    system = stage.system
    children = [spec("a"), spec("s", cleanup="spins", shutdown_s=1.0)]
    supervisor = system.start(Supervisor, SupervisorFlags(), children)
    system.stop(supervisor)
    assert stage.take()[-2:] == [("stop", "s", "shutdown"), ("stop", "a", "shutdown")]


@pytest.mark.slow
def test_kills_right_after_messages_leave_the_others_able_to_talk(stage):
    """A writer that is killed must not take a queue's lock along."""
    system = stage.system
    supervisor = system.start(
        Supervisor,
        SupervisorFlags(strategy=Strategy.ONE_FOR_ONE, intensity=1000),
        specs("a", trap=False),
    )
    for _ in range(30):
        stage.take()
        child = stage.refs(supervisor)["a"]
        system.call(child, "pid")
        kill(system, child)
        stage.wait_for(("start", "a"))
    assert system.call(stage.refs(supervisor)["a"], "pid")


@pytest.mark.parametrize("base", ["multiprocQueueBase", "multiprocTCPBase"])
def test_no_process_survives_shutdown(base):
    system = HostedSystem(base)
    system.start(Supervisor, SupervisorFlags(), specs_without_recorder())
    pids = processes_of(system)
    assert len(pids) >= 6, "Thespian's admin and logger, name server, supervisor, child, probe"
    system.shutdown()
    wait_until(lambda: not any(is_running(pid) for pid in pids), 20)


@pytest.mark.parametrize("base", ["multiprocQueueBase", "multiprocTCPBase"])
def test_shutdown_leaves_neither_descriptors_nor_zombies(base):
    gc.collect()
    before = descriptors()
    system = HostedSystem(base)
    stopped, running = system.start(Doer), system.start(Doer)
    assert stopped is not None
    assert running is not None
    system.stop(stopped)
    group = os.getpgid(system.pid_of(running))
    system.shutdown()
    del system, stopped, running
    gc.collect()
    # The thread that has started the processes holds a pipe to them until it ends, a moment later.
    wait_until(lambda: descriptors() <= before, 20)
    with pytest.raises(ChildProcessError):
        os.waitpid(group, os.WNOHANG)


def descriptors():
    """Tell what is open, but for the folder that tells it."""
    targets = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            targets.add(str(entry.readlink()))
    return targets


def specs_without_recorder():
    return [ChildSpec(id="a", actor=Doer)]


@pytest.mark.slow
def test_large_messages_arrive_whole_in_both_directions(processes):
    one, other = processes.start(Doer), processes.start(Doer)
    value = bytes(range(256)) * 20_000
    assert processes.call(one, (send_to_and_fro, other, value)) == value


async def send_to_and_fro(doer, ref, value):
    return await doer.call(ref, (same, value))


def same(doer, value):
    del doer
    return value


@pytest.mark.slow
def test_nothing_is_left_of_an_application_that_was_killed():
    code = (
        "from tests.bases.actors import Doer; from poe.thespian import HostedSystem; import time\n"
        "system = HostedSystem(); print(system.pid_of(system.start(Doer)), flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        group = os.getpgid(int(run.stdout.readline()))
        left = processes_of_group(group)
        run.kill()
        run.wait()
    assert len(left) >= 4, "Thespian's admin and logger, name server, actor"
    wait_until(lambda: not any(is_running(pid) for pid in left), 20)


@pytest.mark.slow
def test_no_socket_of_a_tcp_system_can_be_reached_from_another_host():
    system = HostedSystem("multiprocTCPBase")
    try:
        pids = [os.getpid(), *processes_of(system)]
        addresses = set().union(*map(listeners, pids))
        assert len(addresses) >= len(pids)
        assert {host for host, _ in addresses} == {"127.0.0.1"}
        with other_host() as host:
            assert host.reaches(port for _, port in addresses) == set()
    finally:
        system.shutdown()


@pytest.mark.parametrize("base", ["multiprocUDPBase", "queue", ""])
def test_a_base_that_is_not_offered_is_refused(base):
    with pytest.raises(OptionError, match="multiprocQueueBase"):
        HostedSystem(base)


@pytest.mark.parametrize("base", ["multiprocQueueBase", "multiprocTCPBase"])
def test_a_system_outlives_the_thread_that_made_it(base):
    made: list[HostedSystem] = []
    thread = threading.Thread(target=lambda: made.append(HostedSystem(base)))
    thread.start()
    thread.join()
    (system,) = made
    try:
        doer = system.start(Doer)
        assert doer is not None
        assert is_running(system.pid_of(doer))
    finally:
        system.shutdown()
