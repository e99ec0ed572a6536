"""Every example runs by itself and prints what its reader is told to expect."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import poe
from tests import python_process

EXAMPLES = python_process.ROOT / "examples"
DEADLINE_S = 100
LINES_MAX = 60

# `demo.py` is a program with a report rather than an example to read; it has tests of its own.
READABLE = sorted(path for path in EXAMPLES.glob("*.py") if path.name != "demo.py")

OUTPUT = {
    "readme_session": """\
P1 < P2: True
next after P2: None
status: the_topic has one appendix server, role w
100001 puts, pointers rise: True
another_topic\t:hw
the_topic\t:w
limit 2:  [b'msg1', b'msg2']
limit 10: [b'msg3', b'msg4', b'msg5']
after that: []
stopped
""",
    "blocking_work": """\
awaited: 144 and -1 is negative
meanwhile: 49
later: True
""",
    "embedded_queue": """\
before the restart: 400 jobs done, the last is 'job 399'
after the restart: goes on with 'job 400', 600 jobs done
left over: None
every job once, in order
""",
    "groups": """\
two members get 10 orders, each once
one member goes on with: b'order 10' b'order 11' b'order 12'
left for who comes next: []
another group has all of them: 13
""",
    "mapping": """\
greetings: [b'{"hello":"Ann"}']
dead letters: 1
large: [b'{"amount": 500}', b'{"amount": 700}']
DE: [b'{"amount": 5, "country": "DE"}']
""",
    "replicated_log": """\
the leader was killed: True
orders at another node: all, once, in order
copies differ: False
""",
    "cluster": """\
a node was killed: True
done: 300 of 300
what came twice is named: True
""",
    "work_queue": """\
done when the block ends: b'hello Ann'
attempt 2: b'hello Bob'
21 sent, 3 attempts failed
given up: b'hello nobody' after 3 attempts: ValueError: b'hello nobody'
""",
    "producer_spool": """\
not delivered and not on disk: []
on disk: 1000
on disk: 0
every reading once, in order: True
""",
    "socket_producer": """\
2 messages acknowledged
50 batches of 100 acknowledged, pointers rise: True
refused: messages[1] is empty; a message has 1 byte or more
nothing of the refused batch is there: []
""",
    "socket_consumer": """\
1000 messages: reading 0 … reading 999
1000 messages: reading 1000 … reading 1999
500 messages: reading 2000 … reading 2499
nothing follows: []
on from the last pointer: True
anything behind that one: False
""",
    "asyncio_consumer": """\
producer: 500 ticks acknowledged
consumer: 500 ticks, from b'tick 0' to b'tick 499'
every tick once, in order
""",
    "worker_pool": """\
100 / 0: ZeroDivisionError, alone
100 / 1: 100
100 / 2: 50
100 / 4: 25
100 / 5: 20
100 / 10: 10
""",
    "pipeline": """\
sink starts
reader starts with line 1
reader starts with line 4
total: 5421
""",
    "back_off": """\
  0.0 s: refused
  2.0 s: refused
  6.0 s: refused
 14.0 s: refused
actor                                                                state       restarts  mailbox\
  last reason
Supervisor.1 (one_for_one, 3 restarts, last ConnectionRefusedError)  running            0        0
└── reader                                                           restarting         3        0\
  ConnectionRefusedError
 30.0 s: refused
 60.0 s: connected
the answer? 42
""",
    "process_isolation": """\
kill 1: the process ended with ('signal', 'SIGKILL')
kill 2: the process ended with ('signal', 'SIGKILL')
kill 3: the process ended with ('signal', 'SIGKILL')
4 processes, one after the other; the last one runs
stopped
""",
    "slab_queue": """\
consumer: 4250 jobs from 'job 0' on
consumer: 5800 jobs from 'job 4200' on
""",
    "slab_spool": """\
sent 100, the last is 'reading 99'
sent 100, the last is 'reading 199'
sent 17, the last is 'reading 216'
sent 33, the last is 'reading 249'
failures: 8
sent 1, the last is 'one more after a restart'
failures: 2
something was removed: True
""",
    "slab_cleanup": """\
10 slabs before, 6 after
the lowest address is 4032 now: True
the oldest message left: reading 218
""",
    "healing_tree": """\
6 / 3 = 2.0
crash 1: ZeroDivisionError, healed by math: 8 / 2 = 4.0
crash 2: ZeroDivisionError, healed by math: 8 / 2 = 4.0
crash 3: ZeroDivisionError, healed by root: 8 / 2 = 4.0
crash 4: ZeroDivisionError, healed by math: 8 / 2 = 4.0
crash 5: ZeroDivisionError, healed by math: 8 / 2 = 4.0
crash 6: ZeroDivisionError, too often even for the root; the divider was started 6 times
""",
}


def run_example(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run an example as its reader would, in an empty folder."""
    return subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *arguments],
        cwd=folder,
        # Temporary files belong into the same folder, so that a forgotten one is seen.
        env=python_process.environment(TMPDIR=str(folder)),
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_the_readme_lists_every_example():
    readme = (python_process.ROOT / "README.md").read_text()
    assert [path.name for path in READABLE if f"| [{path.name}](" not in readme] == []


def test_every_example_has_its_expected_output():
    assert {path.stem for path in READABLE} == set(OUTPUT)


@pytest.mark.slow
@pytest.mark.timeout(2 * DEADLINE_S)
@pytest.mark.parametrize("name", sorted(OUTPUT))
def test_example_prints_what_is_expected_and_leaves_nothing_behind(name, tmp_path):
    if name in {"cluster", "replicated_log"}:
        pytest.importorskip("zenoh")
    if name == "replicated_log":
        pytest.importorskip("nats")
    run = run_example(tmp_path, name)
    assert (run.returncode, run.stdout, run.stderr) == (0, OUTPUT[name], "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_consumer_reads_from_a_given_server_what_the_producer_wrote_there(tmp_path):
    with poe.Node(dir=tmp_path / "data", port=0) as node:
        assert node.address is not None
        host, port = node.address
        written = run_example(tmp_path, "socket_producer", host, str(port))
        read = run_example(tmp_path, "socket_consumer", host, str(port), "readings")
    assert (written.returncode, written.stdout) == (0, OUTPUT["socket_producer"])
    assert read.returncode == 0, read.stderr
    assert read.stdout.splitlines()[4] == "1000 messages: reading 4000 … reading 4999"


@pytest.mark.parametrize("path", READABLE, ids=lambda path: path.name)
def test_example_is_short_enough_to_be_read_at_once(path):
    assert len(path.read_text().splitlines()) <= LINES_MAX


def test_the_sample_logs_of_the_pipelines_are_of_one_day_and_tell_of_attacks():
    ssh, web = runpy.run_path(str(EXAMPLES / "spark" / "push_logs.py"))["day_of_logs"](
        is_sample=True
    )
    assert {line[:6] for line in ssh} == {line[5:11] for line in web} == {"Dec 10"}
    assert sum("Failed password" in line for line in ssh) > 100
    assert any("[error]" in line for line in web)
