"""What `deploy/` holds is true: units that systemd takes, a container file whose parts exist."""

import re
import shlex
import shutil
import subprocess

import pytest

from poe.config import option_types
from tests.python_process import ROOT

UNIT = ROOT / "deploy" / "poe.service"
CONTAINER = ROOT / "deploy" / "Containerfile"


def instructions():
    """Each instruction with its words, continued lines joined."""
    text = re.sub(r"^#.*\n", "", CONTAINER.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path):
    unit = UNIT.read_text()
    # It looks for the program, which is not installed there.
    unit = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit, flags=re.MULTILINE)
    (tmp_path / "poe.service").write_text(unit)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "poe.service")]
    run = subprocess.run(command, capture_output=True, check=False, timeout=50)
    told = [line for line in run.stderr.decode().splitlines() if "poe.service" in line]
    assert (run.returncode, told) == (0, []), run.stderr


@pytest.mark.parametrize("path", [UNIT, CONTAINER], ids=lambda path: path.name)
def test_nothing_is_installed_from_an_index_that_does_not_have_it(path):
    assert not re.search(r"pip install[^\n]*poe-queue", path.read_text())


@pytest.mark.parametrize("path", [UNIT, CONTAINER], ids=lambda path: path.name)
def test_every_variable_is_an_option(path):
    names = set(re.findall(r"\bPOE_([A-Z_]+)=", path.read_text()))
    assert names
    assert names <= {name.upper() for name in option_types()}


def test_the_container_copies_what_there_is_and_runs_what_it_has_made():
    found = instructions()
    kinds = [kind for kind, _ in found]
    known = "FROM WORKDIR COPY RUN ENV USER VOLUME EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD"
    assert set(kinds) <= set(known.split())
    assert kinds[0] == "FROM"
    for kind, rest in found:
        if kind == "COPY" and "--from" not in rest:
            *sources, _ = shlex.split(rest)
            assert all((ROOT / source).exists() for source in sources), rest
        if kind == "RUN":
            subprocess.run(["sh", "-n", "-c", rest], check=True)
    last = kinds[len(kinds) - kinds[::-1].index("FROM") :]
    assert last.index("USER") < last.index("ENTRYPOINT"), "it does not run as root"
    assert kinds.count("ENTRYPOINT") == kinds.count("CMD") == 1
