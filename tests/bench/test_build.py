"""What is not on this machine is left out and said in one line."""

import os
import shutil

import pytest

from bench.build import PROGRAMS, compile_program
from bench.run import missing_line
from bench.scenarios import left_out

PROGRAM = "int main(void) { return 0; }\n"
needs_compiler = pytest.mark.skipif(
    not (shutil.which("gcc") or shutil.which("cc")), reason="needs a C compiler"
)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "program.c"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def no_programs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("no_programs")
def test_without_a_compiler_a_program_is_left_out(source, tmp_path):
    assert compile_program(source, tmp_path / "program") == "no C compiler"


@needs_compiler
@pytest.mark.slow
def test_a_source_that_does_not_compile_leaves_no_older_program(source, tmp_path):
    target = tmp_path / "program"
    assert compile_program(source, target) == ""
    source.write_text("no C at all")
    # Newer than the program, whatever the file system's clock can tell apart.
    later = target.stat().st_mtime + 10
    os.utime(source, (later, later))
    assert compile_program(source, target) == "program.c does not compile"
    assert not target.exists()


@pytest.mark.usefixtures("no_programs")
def test_servers_that_are_not_installed_are_named_in_one_line():
    without = left_out({})
    assert missing_line({}, without) == (
        "Left out: redis (no redis-server), nats (no nats-server)."
    )


@pytest.mark.usefixtures("no_programs")
def test_without_a_compiler_poe_alone_is_measured_through_python():
    not_built = dict.fromkeys(PROGRAMS, "no C compiler")
    line = missing_line(not_built, left_out(not_built))
    assert line.startswith("Left out: limit (no C compiler), redis (no redis-server)")
    assert line.endswith("Poe is loaded by bench/load.py (no C compiler).")
    assert "\n" not in line


def test_where_everything_is_here_nothing_is_said():
    assert missing_line({}, {}) == ""
