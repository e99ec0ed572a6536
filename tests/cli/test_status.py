"""`poe topics`, `poe status` and `poe bench`: for pipes and for people."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest
from rich.console import Console

from poe.cli.status import TopicRows, age
from tests.cli.processes import DEADLINE_S, Background, Server, poe
from tests.python_process import environment

SECOND_US = 1_000_000


def on_terminal(*arguments, port, end_at=None, stdin=None):
    """Run a command with a terminal as stdout and stderr; Ctrl-C it when `end_at` has come."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "poe", *map(str, arguments)],
        stdin=stdin or slave,
        stdout=slave,
        stderr=slave,
        env=environment(POE_PORT=str(port), TERM="xterm", COLUMNS="100"),
    )
    os.close(slave)
    content, deadline_s = b"", time.monotonic() + DEADLINE_S
    try:
        while select.select([master], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
            try:
                content += os.read(master, 65536)
            except OSError:  # how a terminal says that nobody writes to it any more
                break
            if end_at is not None and content.count(end_at) >= 3:
                process.send_signal(signal.SIGINT)
                end_at = None
        return process.wait(DEADLINE_S), content.decode()
    finally:
        process.kill()
        process.wait()
        os.close(master)


@pytest.mark.slow
def test_a_pipe_gets_the_original_s_lines(tmp_path):
    options = ("--count-limit", 10, "--check-interval", 0.02, "--worker-timeout", 3600)
    with Server(tmp_path / "data", *options) as server:
        assert poe("status", port=server.port).stdout == b""
        for topic in ("b_topic", "a_topic"):
            poe("put", topic, "m", port=server.port)
        assert poe("topics", port=server.port).stdout == b"a_topic\nb_topic\n"
        assert poe("status", port=server.port).stdout == b"a_topic\t:w\nb_topic\t:w\n"
        poe("put", "b_topic", *"0123456789", port=server.port)
        with Background("status", "--watch", "--interval", 0.1, port=server.port) as watch:
            # The tick has sealed b_topic's full writer; both are shown again and again.
            shown = watch.read_until(b"b_topic\t:rw\n\na_topic\t:w\nb_topic\t:rw\n")
            assert shown.startswith(b"a_topic\t:w\nb_topic\t:")
            assert watch.end(signal.SIGINT)[0] == 130


@pytest.mark.slow
def test_a_terminal_gets_a_table(server):
    poe("put", "the_topic", "hello", "world", port=server.port)
    code, content = on_terminal("status", port=server.port)
    assert code == 0
    row = next(line for line in content.splitlines() if "the_topic" in line)
    cells = [cell.strip() for cell in row.replace("┃", "│").split("│")[1:-1]]
    # Two records of 4 + 7 + 5 bytes.
    assert cells[:4] == ["the_topic", "1w", "2", "32"]
    assert cells[4] == "now" or cells[4].endswith("ago")


@pytest.mark.slow
def test_watching_on_a_terminal_goes_on_until_interrupted(server):
    poe("put", "the_topic", "hello", port=server.port)
    code, content = on_terminal(
        "status", "--watch", "--interval", 0.1, port=server.port, end_at=b"the_topic"
    )
    assert code == 130
    assert "Traceback" not in content


@pytest.mark.slow
def test_put_shows_progress_on_a_terminal_only(server, tmp_path):
    log = tmp_path / "sample.log"
    log.write_bytes(b"line\n" * 1000)
    with log.open("rb") as stdin:
        code, content = on_terminal("put", "t", "-", port=server.port, stdin=stdin)
    assert code == 0
    assert "1,000 acknowledged" in content
    assert "1000 messages, last pointer" in content


@pytest.mark.slow
def test_put_draws_nothing_over_what_is_typed(server):
    master, slave = pty.openpty()
    os.write(master, b"typed\n\x04")
    code, content = on_terminal("put", "t", "-", port=server.port, stdin=slave)
    os.close(slave)
    os.close(master)
    assert (code, "acknowledged" in content) == (0, False)
    assert "1 message, last pointer" in content


@pytest.mark.slow
def test_bench_prints_a_rate_for_each_kind_of_request(server):
    run = poe("bench", "--size", 10, port=server.port)
    assert run.returncode == 0, run.stderr
    header, *rows = run.stdout.decode().splitlines()
    assert header.split() == ["request", "messages/s", "MB/s", "ms/call"]
    assert [row.split(",")[0] for row in rows] == ["write"] * 4 + ["read"] * 3
    assert all(float(row.split()[-3].replace(",", "")) > 100 for row in rows)


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (-5, "now"),
        (SECOND_US - 1, "now"),
        (SECOND_US, "1 s ago"),
        (119 * SECOND_US, "1 min ago"),
        (7200 * SECOND_US, "2 h ago"),
        (3 * 86_400 * SECOND_US, "3 d ago"),
    ],
)
def test_an_age_is_told_in_the_largest_unit(microseconds, text):
    assert age(microseconds) == text


ROWS: list[tuple[str, ...]] = [
    ("orders", "3h 1w", "1,234,567", "98,765,432,109", "3 min ago"),
    ("a" * 60, "1w", "1", "1", "now"),
]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_all_of_a_topic_is_told_at_every_width(width):
    screen = io.StringIO()
    Console(file=screen, width=width, force_terminal=True, no_color=True).print(TopicRows(ROWS))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert all(len(line) <= width for line in shown.splitlines())
    joined = shown.replace("\n", "")
    for row in ROWS:
        for cell in row:
            assert cell in (joined if len(cell) > width else shown)
    assert ("servers" in shown) == (width == 200), "a table where there is room for it"
