"""What the README shows is what happens: its code runs, its sessions print that, its table is true.

`expression  # -> value` in a block of Python is a claim and becomes an assertion; what the blocks
print stands in blocks of text. In a console block a line with `$` is typed, and what stands below
is its output. The other documents that hold programs are checked in the same way.
"""

import importlib.util
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import python_process
from tests.cli.processes import Server, poe

README = python_process.ROOT / "README.md"
SUPERVISION = python_process.ROOT / "docs" / "supervision.md"
TABLES = python_process.ROOT / "docs" / "tables.md"
TESTING = python_process.ROOT / "docs" / "testing.md"
CONSUMER = python_process.ROOT / "docs" / "consumer.md"
GROUPS = python_process.ROOT / "docs" / "groups.md"
PRODUCER = python_process.ROOT / "docs" / "producer.md"
MAPPING = python_process.ROOT / "docs" / "mapping.md"
DEADLINE_S = 100
PORT_SHOWN, GATEWAY_PORT_SHOWN = "5555", "8000"
GATEWAY = re.compile(r"^\$ [^\n]*(poe gateway|:8000/).*\n(?:(?!\$ ).*\n)*", flags=re.MULTILINE)

CLAIM = re.compile(r"^(\S.*?)\s+# -> (.+)$", flags=re.MULTILINE)
FILE = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", flags=re.MULTILINE)
POINTER = re.compile(r"\b\d{16}\b")


def blocks(document: Path, language: str) -> list[str]:
    fenced = rf"^```{language}\n(.*?)^```"
    return re.findall(fenced, document.read_text(), flags=re.MULTILINE | re.DOTALL)


def free_port() -> str:
    """A port that nobody listens on; should somebody take it meanwhile, the test fails loudly."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def environment(folder: Path, port: str) -> dict[str, str]:
    """A reader's environment: `poe` is on the path, and the default port is one that is free."""
    commands = folder / "bin"
    commands.mkdir()
    command = commands / "poe"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m poe "$@"\n')
    command.chmod(0o755)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    return python_process.environment(PATH=path, POE_PORT=port)


def program(document: Path) -> str:
    """All Python blocks of a document as one program, in which claims are asserted.

    Without the extra it is one without the blocks for Kafka; and without those for a server that
    has users, which `tests/client` has.
    """
    left_out = ["poes://"]
    if importlib.util.find_spec("confluent_kafka") is None:
        left_out.append("kafka")
    shown = [
        each for each in blocks(document, "python") if not any(word in each for word in left_out)
    ]
    code = "\n".join(shown).replace("\n# -> ", "  # -> ")
    checked, count = CLAIM.subn(r"assert (\1) == (\2), (\1)", code)
    assert count, "the document claims nothing"
    return checked


@pytest.mark.slow
@pytest.mark.parametrize(
    "document",
    [README, SUPERVISION, TABLES, TESTING, CONSUMER, GROUPS, PRODUCER, MAPPING],
    ids=lambda path: path.name,
)
def test_python_blocks_do_what_their_comments_claim(document, tmp_path):
    port = free_port()
    run = subprocess.run(
        [sys.executable, "-c", program(document).replace(PORT_SHOWN, port)],
        cwd=tmp_path,
        env=environment(tmp_path, port),
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "".join(blocks(document, "text"))


class Terminal:
    """Types commands as a reader does; those that go on by themselves go on in the background."""

    def __init__(self, folder: Path, port: str) -> None:
        self._folder = folder
        self._environment = environment(folder, port)
        self._background: list[subprocess.Popen[str]] = []

    def type(self, command: str, output_lines_count: int) -> list[str]:
        """Run a command and return its output, of an endless one as many lines as are expected."""
        if not re.search(r"poe serve|poe gateway|poe mapping run|--follow", command):
            run = subprocess.run(
                ["sh", "-c", command],
                cwd=self._folder,
                env=self._environment,
                check=False,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
            )
            assert (run.returncode, run.stderr) == (0, ""), command
            return run.stdout.splitlines()
        process = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._background.append(process)
        assert process.stdout is not None
        return [process.stdout.readline().rstrip("\n") for _ in range(output_lines_count)]

    def close(self) -> None:
        """End what goes on in the background: the last one first, and not without its consent."""
        for process in reversed(self._background):
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            try:
                process.wait(DEADLINE_S)
            finally:
                process.kill()
                process.wait()
                process.stdout.close()


@pytest.fixture
def port() -> str:
    return free_port()


@pytest.fixture
def terminal(tmp_path: Path, port: str) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path, port)
    yield terminal
    terminal.close()


@pytest.mark.slow
@pytest.mark.parametrize("document", [README, MAPPING], ids=lambda path: path.name)
def test_console_sessions_print_what_is_shown(document, terminal, port, tmp_path):
    for name, content in FILE.findall(document.read_text()):
        (tmp_path / name).write_text(content)
    session = "".join(blocks(document, "console"))
    if importlib.util.find_spec("uvicorn") is None:
        session = GATEWAY.sub("", session)
    session = session.replace(PORT_SHOWN, port).replace(GATEWAY_PORT_SHOWN, free_port())
    typed = COMMAND.findall(session)
    assert len(typed) == session.count("$ ") > 3
    for command, shown in typed:
        expected = shown.splitlines()
        printed = terminal.type(command, len(expected))
        assert without_pointers(printed) == without_pointers(expected), command


def without_pointers(lines: list[str]) -> list[str]:
    return [POINTER.sub("POINTER", line) for line in lines]


@pytest.mark.slow
def test_the_tree_on_the_first_screen_is_that_of_a_server(tmp_path):
    shown = re.findall(r"^    (actor .*\n(?:    .*\n)*)", README.read_text(), flags=re.MULTILINE)
    [picture] = [each for each in shown if "poe_sup" in each]
    lines = [line.removeprefix("    ") for line in picture.splitlines()]
    with Server(tmp_path / "data") as server:
        poe("put", "orders", "bicycle", "bell", port=server.port)
        tree = poe("tree", port=server.port).stdout.decode().splitlines()
    assert lines.pop().strip() == "…", "the other acceptors are left out"

    def masked(line):
        return re.sub(r"\s+", " ", re.sub(r"\.\d+", ".N", line)).strip()

    assert list(map(masked, lines)) == list(map(masked, tree[: len(lines)]))


def test_the_figure_on_the_first_screen_is_that_of_the_benchmarks():
    benchmarks = (README.parent / "docs" / "benchmarks.md").read_text()
    rate, times = re.findall(
        r"store (\S+) million messages a second: (\S+) times", README.read_text()
    )[0]
    row = re.search(r"^\| write, 100 per call, 1 topic \|.*$", benchmarks, flags=re.MULTILINE)
    assert row is not None
    assert f"| {rate} M (" in row[0]
    assert f"**{times} ×**" in row[0]
