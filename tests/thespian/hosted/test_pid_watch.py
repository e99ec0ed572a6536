"""Ends of processes, with pidfds and without: on other systems, and where descriptors ran out."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from poe.thespian.hosted.pid_watch import PidWatch, is_gone, wait_for_end


def descriptors():
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def refuse(pid):
    raise OSError(24, "Too many open files")


@pytest.fixture(params=["pidfds", "no pidfds"])
def process(request, monkeypatch):
    if request.param == "no pidfds":
        monkeypatch.setattr(os, "pidfd_open", refuse, raising=False)
    elif not hasattr(os, "pidfd_open"):
        pytest.skip("this system has no pidfds")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_running_process_is_not_gone(process):
    watch = PidWatch()
    watch.add(process.pid)
    assert not is_gone(process.pid)
    assert watch.take_ended() == []
    watch.close()


def test_ended_process_is_taken_once(process):
    watch = PidWatch()
    watch.add(process.pid)
    process.kill()
    process.wait()
    assert watch.take_ended() == [process.pid]
    assert watch.take_ended() == []
    assert is_gone(process.pid)


def test_waiting_lasts_until_the_process_has_ended(process):
    waiter = threading.Thread(target=wait_for_end, args=[process.pid])
    waiter.start()
    waiter.join(0.1)
    assert waiter.is_alive()
    process.kill()
    process.wait()
    waiter.join(5.0)
    assert not waiter.is_alive()


def test_closed_watch_holds_no_descriptors(process):
    before = descriptors()
    watch = PidWatch()
    watch.add(process.pid)
    watch.close()
    assert len(watch) == 0
    assert descriptors() == before
