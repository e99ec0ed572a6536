"""`poe archive`, as far as it comes without Spark; the rest is in `tests/spark`."""

import pytest

from tests.cli.processes import complaint, poe

pytestmark = pytest.mark.slow


def test_without_java_the_command_says_what_to_install(tmp_path):
    elsewhere = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    run = poe("archive", "t", "--to", tmp_path / "archive", **elsewhere)
    assert run.returncode == 2
    assert "Java 17 (apt-get install default-jre-headless" in complaint(run)
    assert not (tmp_path / "archive").exists()


def test_an_archive_has_to_be_named():
    run = poe("archive", "t")
    assert run.returncode == 2
    assert "--to" in complaint(run)


def test_the_help_says_that_nothing_is_deleted():
    run = poe("archive", "--help")
    assert run.returncode == 0
    assert b"delete nothing" in run.stdout
