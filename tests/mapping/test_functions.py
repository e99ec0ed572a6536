"""Functions of rules end in time, and a bad one harms its own message alone."""

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from poe.mapping.function_file import Answer, find_function
from poe.mapping.functions import HANGING_MAX, FunctionsHang, InProcess, InThread, _Thread
from poe.mapping.message import Message
from poe.mapping.rule import Call
from tests.python_process import environment
from tests.waiting import wait_until


def messages(*values):
    return [Message("t", number, value) for number, value in enumerate(values, start=1)]


def test_each_message_has_its_answer_or_its_error():
    def function(message):
        if message.value == b"bad":
            raise ValueError(message.value)
        return message.value

    answers = InThread(Call(function=function, name="f")).run(messages(b"a", b"bad", b"c"))
    assert answers[::2] == [Answer(b"a"), Answer(b"c")]
    assert answers[1].error.startswith("ValueError: b'bad', line ")


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_function_that_ends_its_thread_has_an_error_and_is_not_called_again(error):
    calls = []

    def function(message):
        calls.append(message.value)
        if message.value == b"bad":
            raise error(3)
        return message.value

    answers = InThread(Call(function=function, name="f")).run(messages(b"a", b"bad", b"c"))
    assert answers[1].error.startswith(f"{error.__name__}: 3")
    assert [each.value for each in answers] == [b"a", None, b"c"]
    assert calls == [b"a", b"bad", b"c"]


@pytest.mark.slow
def test_a_call_that_hangs_is_left_and_the_rest_goes_on():
    let_go = threading.Event()

    def function(message):
        if message.value == b"hang":
            let_go.wait()
        return message.value

    runner = InThread(Call(function=function, name="f", timeout_s=1.0))
    try:
        answers = runner.run(messages(b"a", b"hang", b"c"))
        assert answers == [Answer(b"a"), Answer(None, "it took longer than 1 s"), Answer(b"c")]
        with pytest.raises(FunctionsHang, match="calls of f have not come back"):
            runner.run(messages(*[b"hang"] * HANGING_MAX))
    finally:
        let_go.set()


def test_a_call_that_comes_back_when_it_was_just_given_up_has_one_answer(monkeypatch):
    let_go = threading.Event()
    wait = _Thread.wait

    def wait_and_let_go(self, timeout_s):
        found = wait(self, timeout_s)
        let_go.set()
        self.join()
        return found

    monkeypatch.setattr(_Thread, "wait", wait_and_let_go)
    call = Call(function=lambda _: let_go.wait(), name="f", timeout_s=0.01)
    assert InThread(call).run(messages(b"a")) == [Answer(None, "it took longer than 0.01 s")]


FUNCTION = """
import os, signal, time

class Local:
    def __reduce__(self):
        return eval, ("__import__('nothing_of_that_name')",)

def function(message):
    print("what a function prints goes elsewhere")
    if message.value == b"hang":
        time.sleep(1000)
    if message.value == b"pid":
        print(os.getpid(), flush=True)
        time.sleep(1000)
    if message.value == b"end":
        os._exit(7)
    if message.value == b"lambda":
        return lambda: 0
    if message.value == b"local":
        return Local()
    if message.value == b"shut":
        os.closerange(3, 64)
        time.sleep(1000)
    if message.value == b"bad":
        1 / 0
    if message.value == b"signals":
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        return str(os.getsid(0) == os.getpid())
    return message.value + b"!"
"""


@pytest.fixture
def runner(tmp_path):
    (tmp_path / "f.py").write_text(FUNCTION)
    function = find_function(tmp_path, "f.py:function").function
    return InProcess(Call(function=function, name="f.py:function", timeout_s=3.0))


@pytest.mark.slow
def test_in_a_process_a_function_may_do_anything(runner):
    answers = runner.run(messages(b"a", b"bad", b"end", b"lambda", b"b", b"hang", b"c"))
    assert [each.value for each in answers] == [b"a!", None, None, None, b"b!", None, b"c!"]
    told = [each.error for each in answers if each.error]
    assert told[0].startswith("ZeroDivisionError: division by zero, line ")
    assert told[1] == "its process ended with 7"
    assert told[2].startswith("what it returned cannot be sent")
    assert told[3] == "it took longer than 3 s"


@pytest.mark.slow
def test_signals_for_all_processes_of_a_mapping_end_no_call(runner):
    assert runner.run(messages(b"signals")) == [Answer("True")]


@pytest.mark.slow
def test_a_process_that_is_killed_between_two_batches_is_no_error_of_the_next_message(runner):
    runner.run(messages(b"a"))
    process = runner._process._process  # noqa: SLF001 - whoever is short of memory kills it
    process.kill()
    process.wait()
    assert runner.run(messages(b"b", b"c")) == [Answer(b"b!"), Answer(b"c!")]


@pytest.mark.slow
def test_a_process_that_is_killed_before_it_was_told_all_is_an_error_of_one_message(runner):
    runner.run(messages(b"a"))
    process = runner._process._process  # noqa: SLF001 - likewise
    process.kill()
    process.wait()
    process.poll = lambda: None  # as if it lived still at that moment
    answers = runner.run(messages(b"b", b"c"))
    assert [each.value for each in answers] == [None, b"c!"]
    assert str(answers[0].error).startswith("its process cannot be used: ")


@pytest.mark.slow
def test_a_process_says_nothing_that_its_function_does_not(runner, capfd):
    runner.run(messages(b"a"))
    told = capfd.readouterr()
    assert (told.out, told.err) == ("", "what a function prints goes elsewhere\n")


@pytest.mark.slow
def test_what_cannot_be_read_of_a_process_is_an_error_of_one_message(runner):
    answers = runner.run(messages(b"a", b"local", b"b", b"shut", b"c"))
    assert [each.value for each in answers] == [b"a!", None, b"b!", None, b"c!"]
    assert "ModuleNotFoundError" in str(answers[1].error)
    assert str(answers[3].error).startswith("its process ")


@pytest.mark.slow
def test_many_messages_of_any_size_come_back(runner):
    values = [bytes(size) for size in (1, 100, 70_000) * 300]
    assert [each.value for each in runner.run(messages(*values))] == [v + b"!" for v in values]


@pytest.mark.slow
def test_a_process_that_does_not_start_is_an_error_of_each_message(runner, tmp_path):
    Path(tmp_path / "f.py").write_text("raise SystemExit(3)")
    assert [each.error for each in runner.run(messages(b"a"))] == [
        "its process cannot be used: it did not start"
    ]


@pytest.mark.slow
def test_its_process_is_heard_by_a_program_that_has_a_thousand_files_open(runner):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert runner.run(messages(b"a")) == [Answer(b"a!")]
    finally:
        for each in others:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


PARENT = """
import sys
from pathlib import Path
from poe.mapping.function_process import FunctionProcess
from poe.mapping.message import Message
FunctionProcess(Path(sys.argv[1]), "function", 1000.0).ask([Message("t", 1, b"pid")])
"""


@pytest.mark.slow
def test_a_process_whose_program_is_killed_ends_though_a_call_hangs(runner, tmp_path):
    command = [sys.executable, "-c", PARENT, str(tmp_path / "f.py")]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stderr is not None
        assert "elsewhere" in parent.stderr.readline()
        pid = int(parent.stderr.readline())
        parent.kill()
        # It has its standard error, too: this ends with it.
        assert parent.stderr.read() == ""
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 20)
