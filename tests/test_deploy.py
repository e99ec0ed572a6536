"""What `deploy/` holds is true: units that systemd takes, a container file whose parts exist."""

import json
import re
import shlex
import shutil
import subprocess

import pytest

from poe.config import option_types
from tests.cli.processes import Server, poe_here
from tests.python_process import ROOT

UNIT = ROOT / "deploy" / "poe.service"
DROP_IN = ROOT / "deploy" / "poe-tls.conf"
CONTAINER = ROOT / "deploy" / "Containerfile"


def instructions():
    """Each instruction with its words, continued lines joined."""
    text = re.sub(r"^#.*\n", "", CONTAINER.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


@pytest.fixture(params=[False, True], ids=["alone", "with the drop-in"])
def units(tmp_path, request):
    """A folder with the unit; its programs, which are not installed here, are some that are."""
    unit = re.sub(r"^(Exec\w+)=\S+", r"\1=/bin/true", UNIT.read_text(), flags=re.MULTILINE)
    (tmp_path / "poe.service").write_text(unit)
    if request.param:
        (tmp_path / "poe.service.d").mkdir()
        shutil.copy(DROP_IN, tmp_path / "poe.service.d" / "tls.conf")
    return tmp_path


def systemd_analyze(*arguments, **options):
    command = ["systemd-analyze", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, timeout=50, **options)


needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="needs systemd-analyze"
)


@pytest.mark.slow
@needs_systemd
def test_systemd_takes_the_unit(units):
    run = systemd_analyze("verify", "--man=no", units / "poe.service")
    told = [line for line in run.stderr.decode().splitlines() if "poe.service" in line]
    assert (run.returncode, told) == (0, []), run.stderr


@pytest.mark.slow
@needs_systemd
def test_the_unit_leaves_little_open(units):
    """Of 10 for a service that is not confined at all, it has less than 2."""
    run = systemd_analyze("security", "--offline=yes", "--threshold=20", units / "poe.service")
    assert run.returncode == 0, run.stdout.decode()[-200:]


@pytest.mark.parametrize("path", [UNIT, CONTAINER], ids=lambda path: path.name)
def test_nothing_is_installed_from_an_index_that_does_not_have_it(path):
    assert not re.search(r"pip install[^\n]*poe-queue", path.read_text())


@pytest.mark.parametrize("path", [UNIT, DROP_IN, CONTAINER], ids=lambda path: path.name)
def test_every_variable_is_an_option(path):
    names = set(re.findall(r"\bPOE_([A-Z_]+)=", path.read_text()))
    assert names
    assert names <= {name.upper() for name in option_types()}


@pytest.mark.parametrize("path", [DROP_IN, CONTAINER], ids=lambda path: path.name)
def test_what_is_typed_to_set_users_up_is_typed_right(path, tmp_path, monkeypatch):
    """The commands in comments, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    setting_up = r"^# .*?(?:bin/poe|poe-etc) ((?:certificates|user) .*)$"
    typed = re.findall(setting_up, path.read_text(), flags=re.MULTILINE)
    assert len(typed) == 2
    for command in typed:
        assert poe_here(*shlex.split(command)).returncode == 0, command
    assert {"ca.pem", "server.pem", "server.key", "users.toml"} <= {
        p.name for p in tmp_path.iterdir()
    }


@pytest.mark.slow
@pytest.mark.parametrize("way", [{"POE_HOST": "0.0.0.0"}, {"POE_PORT": "none"}], ids=str)
def test_the_container_looks_for_its_server_by_the_variables_of_the_server(way, tmp_path):
    [rest] = [rest for kind, rest in instructions() if kind == "HEALTHCHECK"]
    _, *command = json.loads(rest.partition(" CMD ")[2])
    with Server(tmp_path / "data") as server:
        url = {"POE_URL": f"poe://127.0.0.1:{server.port}"} if "POE_PORT" in way else {}
        run = poe_here(*command, **{"POE_PORT": str(server.port), **way, **url})
    assert run.returncode == 0, run.stderr


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
