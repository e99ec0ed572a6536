"""`poe put` and `poe read` against a running server: what goes in comes out, byte for byte."""

import itertools
import json
import os
import pty
import random
import signal
import subprocess
import sys

import pytest

from poe import protocol
from tests.cli.processes import DEADLINE_S, Background, Server, complaint, poe, poe_here
from tests.python_process import environment

pytestmark = pytest.mark.slow

NUMBERS = itertools.count()
SAMPLE = (
    b"plain\r\nstray\rreturn\n\xff\xfe binary \0\n  spaces  \ntab\t\n\xe2\x80\xa8 line separator"
)


@pytest.fixture
def topic():
    """One that no other test has put onto."""
    return f"topic-{next(NUMBERS)}"


def last_pointer(run):
    assert run.returncode == 0, run.stderr
    return int(run.stdout.split()[-1])


@pytest.mark.parametrize("end", [b"", b"\n"], ids=["no final newline", "final newline"])
def test_lines_come_back_byte_for_byte(server, end):
    content = SAMPLE + end
    put = poe("put", "t", "-", stdin=content, port=server.port)
    assert put.stdout.startswith(b"6 messages, last pointer ")
    output_format = "lines" if end else "joined"
    read = poe("read", "t", "--format", output_format, port=server.port)
    assert read.stdout == content
    assert put.stderr == read.stderr == b""


def test_kept_ends_give_back_any_input(server):
    content = b"\n\nempty lines\n\n" + random.Random(1).randbytes(100_000)
    assert poe("put", "t", "-", "--keep-ends", stdin=content, port=server.port).returncode == 0
    assert poe("read", "t", "--format", "raw", port=server.port).stdout == content


EXACT = {
    "no final newline": b"one\ntwo",
    "CRLF": b"one\r\ntwo\r\n",
    "blank lines": b"\none\n\n\ntwo\n\n",
    "NUL bytes": b"a\0b\n\0\n",
    "invalid UTF-8": b"\xff\xfe\n\xc3\n",
    "a long line": b"x" * 1_000_000 + b"\nshort\n",
    "newlines alone": b"\n\n",
}


@pytest.mark.parametrize("content", EXACT.values(), ids=EXACT.keys())
def test_two_options_make_put_and_read_exact(one_server, topic, content):
    last_pointer(poe("put", topic, "-", "--keep-ends", stdin=content, port=one_server.port))
    assert poe("read", topic, "--format", "raw", port=one_server.port).stdout == content


@pytest.mark.parametrize("content", EXACT.values(), ids=EXACT.keys())
def test_without_options_only_the_final_newline_and_empty_lines_differ(one_server, topic, content):
    put = poe("put", topic, "-", stdin=content, port=one_server.port)
    read = poe("read", topic, port=one_server.port)
    lines = content.removesuffix(b"\n").split(b"\n")
    if b"" not in lines:
        assert (put.returncode, put.stderr) == (0, b"")
        assert read.stdout == content.removesuffix(b"\n") + b"\n"
        return
    number = lines.index(b"") + 1
    assert put.returncode == 1
    told = f"line {number} is empty, which no message can be, and nothing behind it was sent"
    assert told in put.stderr.decode()
    assert read.stdout == b"".join(line + b"\n" for line in lines[: number - 1])


def test_of_an_empty_file_nothing_is_stored(server):
    for options in ((), ("--keep-ends",)):
        assert poe("put", "t", "-", *options, port=server.port).stdout == b"0 messages\n"
    read = poe("read", "t", port=server.port)
    assert (read.returncode, read.stdout) == (1, b"")
    assert b"topic 't' is not known" in read.stderr


def test_real_logs_come_back_byte_for_byte(server, loghub):
    logs = sorted(loghub.glob("*.log"))
    assert len(logs) == 5
    for log in logs:
        content = log.read_bytes()
        last_pointer(poe("put", log.stem, "-", stdin=content, port=server.port))
        ends = "lines" if content.endswith(b"\n") else "joined"
        read = poe("read", log.stem, "--format", ends, port=server.port)
        assert read.stdout == content, log.name


def test_messages_as_arguments_may_be_any_bytes(server):
    pointer = last_pointer(poe("put", "t", "one", os.fsdecode(b"tw\xffo"), port=server.port))
    read = poe("read", "t", "--with-pointers", port=server.port)
    lines = [line.split(b"\t") for line in read.stdout.splitlines()]
    assert [message for _, message in lines] == [b"one", b"tw\xffo"]
    assert int(lines[-1][0]) == pointer
    assert (
        poe("read", "t", "--pointer", lines[0][0].decode(), port=server.port).stdout == b"tw\xffo\n"
    )
    assert poe("read", "t", "--pointer", pointer, port=server.port).stdout == b""


def test_limit_and_json(server):
    last_pointer(poe("put", "t", "é", os.fsdecode(b"\xff"), "c", port=server.port))
    read = poe("read", "t", "--limit", 2, "--format", "json", port=server.port)
    first, second = map(json.loads, read.stdout.splitlines())
    assert first["message"] == "é"
    assert second["message_base64"] == "/w=="
    assert first["pointer"] < second["pointer"]
    assert [first["ordinal"], second["ordinal"]] == [0, 1]
    behind = poe("read", "t", "--pointer", second["pointer"], "--format=json", port=server.port)
    assert json.loads(behind.stdout)["ordinal"] == 2
    assert poe("read", "t", "--limit", 0, port=server.port).stdout == b""
    assert poe("read", "t", "--from", "latest", port=server.port).stdout == b""


def test_an_empty_line_is_refused_with_its_number(server):
    run = poe("put", "t", "-", stdin=b"a\nb\n\nc\n", port=server.port)
    assert run.returncode == 1
    assert run.stdout.startswith(b"2 messages, last pointer ")
    assert b"line 3 is empty" in run.stderr
    assert b"acknowledged messages: 2" in run.stderr
    skipped = poe("put", "t", "-", "--skip-empty", stdin=b"\nc\n\n", port=server.port)
    assert skipped.stdout.startswith(b"1 message,")
    assert poe("read", "t", port=server.port).stdout == b"a\nb\nc\n"


def test_no_input_is_no_message(server):
    assert poe("put", "t", "-", port=server.port).stdout == b"0 messages\n"
    assert poe("topics", port=server.port).stdout == b""


def test_a_refused_line_tells_how_many_were_acknowledged(tmp_path):
    content = b"short\n" * 50_000 + b"x" * 2000 + b"\n"
    with Server(tmp_path / "data", "--message-max", 1000) as server:
        run = poe("put", "t", "-", stdin=content, port=server.port)
        stored = poe("read", "t", port=server.port).stdout
    assert run.returncode == 1
    assert b"message of 2000 bytes is refused" in run.stderr
    acknowledged = int(run.stderr.split(b"acknowledged messages: ")[1].split(b",")[0])
    assert stored == b"short\n" * acknowledged


def test_a_killed_server_ends_put_with_the_count_of_what_is_kept(tmp_path):
    with Server(tmp_path / "data") as server:
        put = Background("put", "t", "-", stdin=subprocess.PIPE, port=server.port)
        with put:
            put.type(b"kept\n")
            with protocol.socket(port=server.port, timeout_s=20) as connection:
                assert connection.wait("t", 0, timeout_s=20)
            server.process.kill()
            server.process.wait()
            stdout, stderr = put.process.communicate(b"lost\n", timeout=20)
        assert put.process.returncode == 1
        assert stdout.startswith(b"1 message,")
        assert stderr == (
            b"poe: the connection to the server was lost (does it still run?); "
            b"acknowledged messages: 1, of 1 sent after them some may be stored\n"
        )
    with Server(tmp_path / "data") as server:
        assert poe("read", "t", port=server.port).stdout == b"kept\n"


def test_a_killed_server_ends_read_with_the_pointer_to_continue_from(tmp_path):
    with Server(tmp_path / "data") as server:
        pointer = last_pointer(poe("put", "t", "one", "two", port=server.port))
        with Background("read", "t", "--follow", port=server.port) as follower:
            follower.read_until(b"two\n")
            server.process.kill()
            assert follower.process.wait(20) == 1
            assert follower.process.stderr.read().decode() == (
                "poe: the connection to the server was lost (does it still run?); "
                f"continue with --pointer {pointer}\n"
            )


def test_follow_shows_what_another_process_puts(server):
    with Background("read", "t", "--follow", port=server.port) as follower:
        last_pointer(poe("put", "t", "one", "two", port=server.port))
        assert follower.read_until(b"two\n") == b"one\ntwo\n"
        last_pointer(poe("put", "t", "three", port=server.port))
        assert follower.read_until(b"three\n") == b"three\n"
        code, stdout, stderr = follower.end(signal.SIGINT)
    assert (code, stdout) == (130, b"")
    assert b"interrupted; continue with --pointer" in stderr


def test_a_reader_that_has_enough_ends_read_quietly(server):
    content = b"".join(b"%d\n" % number for number in range(200_000))
    last_pointer(poe("put", "t", "-", stdin=content, port=server.port))
    with Background("read", "t", port=server.port) as read:
        assert read.read_until(b"\n").startswith(b"0\n1\n")
        read.process.stdout.close()
        assert read.process.wait(20) == 0
        assert read.process.stderr.read() == b""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("put", "bad/name", "x"), "topic name 'bad/name' is not allowed; use 1 to 200 of"),
        (("put", "", "x"), "topic name '' is not allowed"),
        (("read", "x" * 256), "is not allowed; use 1 to 200 of"),
        (("read", "bad/name", "--follow"), "topic name 'bad/name' is not allowed"),
        (("put", "t", "a", ""), "message 2 is empty; a message has 1 byte or more"),
        (("put", "t", "a", "-"), "- must stand alone"),
        (("read", "t", "--pointer", 2**56), "option '--pointer' is '72057594037927936'; use a who"),
        (("read", "t", "--pointer", "x"), "use a whole number, 0 to 72057594037927935"),
        (("read", "t", "--limit", -1), "option '--limit' is '-1'; use a whole number, 0 or more"),
        (("read", "t", "--from", "now"), "option '--from' is 'now'; use earliest or latest"),
        (("read", "t", "--from", "latest", "--pointer", 5), "leave one of them out"),
        (("read", "t", "--format", "xml"), "use lines or joined or raw or json"),
        (("status", "--interval", "nan"), "option '--interval' is 'nan'; use a number, 0.1 to"),
        (("bench", "--size", 0), "option '--size' is '0'; use a whole number, 1 to 60000"),
        (("topics", "--port", "none"), "is 'none'; use --url poes://host:port"),
        (("topics", "--port", "no"), "is 'no'; use a whole number, 1 to 65535"),
        (("read", "t", "--format", "raw", "--with-pointers"), "--with-pointers"),
    ],
)
def test_what_cannot_be_asked_is_bad_usage(one_server, arguments, told):
    run = poe_here(*arguments, port=one_server.port)
    assert run.returncode == 2
    assert told in complaint(run)


def test_an_unknown_topic_is_told_from_an_empty_one(server):
    run = poe("read", "nosuch", port=server.port)
    assert run.returncode == 1
    assert "topic 'nosuch' is not known" in complaint(run)


def test_read_shows_what_lies_before_damage_and_tells_how_to_read_on_behind_it(tmp_path):
    with Server(tmp_path / "data") as server:
        poe("put", "t", "-", stdin=b"0\n1\n2\n3\n", port=server.port)
        (path,) = (tmp_path / "data" / "topics" / "t").glob("*_data")
        with path.open("r+b") as file:
            file.seek(2 * 12)
            file.write(b"\xff" * 12)
        run = poe("read", "t", port=server.port)
        assert (run.returncode, run.stdout) == (1, b"0\n1\n")
        told, _, pointer = run.stderr.decode().rpartition(" ")
        assert "topics/t/" in told
        assert "poe check" in told
        assert told.endswith("; continue with --pointer")
        rest = poe("read", "t", "--pointer", pointer.strip(), port=server.port)
        assert rest.stdout == b"3\n"
    check = poe("check", tmp_path / "data")
    assert check.returncode == 1
    assert b"DAMAGED" in check.stdout


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal_while_the_messages_go_to_a_file(server, tmp_path):
    poe("put", "t", "one", "two", port=server.port)
    controlling, terminal = pty.openpty()
    with (tmp_path / "out").open("wb") as file:
        run = subprocess.run(
            [sys.executable, "-m", "poe", "read", "t"],
            stdout=file,
            stderr=terminal,
            check=True,
            timeout=DEADLINE_S,
            env=environment(POE_PORT=str(server.port), TERM="xterm", COLUMNS="80"),
        )
    os.close(terminal)
    shown = os.read(controlling, 65536)
    os.close(controlling)
    assert run.returncode == 0
    assert b"2 messages" in shown
    assert (tmp_path / "out").read_bytes() == b"one\ntwo\n"
    assert poe("read", "t", port=server.port).stderr == b"", "none where nobody looks"
