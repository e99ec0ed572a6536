"""A secret that gets into a node is in nothing that Spark, or Poe on Spark, writes or shows."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from poe.security.token import make_token
from tests.broker.nodes import read_by_next
from tests.python_process import environment
from tests.spark.secured import SecuredNode
from tests.spark.standalone import standalone_cluster
from tests.spark.test_grants import STAGING

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("leak_program.py")
PASSWORD = "correct-horse-canary-staple"


@pytest.fixture
def secured(tmp_path, certificates):
    """A node where `reader` gets in by a token, and `writer` by a password."""
    (tmp_path / "secrets").mkdir()
    node = SecuredNode(tmp_path / "secrets", certificates)
    node.add("reader", [("read", {"topics": "in"}), *STAGING])
    node.users.password("writer", PASSWORD)
    (tmp_path / "secrets" / "password").write_text(PASSWORD + "\n")
    node.users.grant("writer", "read write create", prefixes="")
    for operations, names in STAGING:
        node.users.grant("writer", operations, **names)
    node.users.grant("writer", "admin")
    node.start()
    node.node.put_many("in", [b"1", b"2"])
    yield node
    node.stop()


def forms_of(secret):
    """Return how a secret could be written."""
    raw = secret.encode()
    return {raw, raw.hex().encode(), base64.b64encode(raw), raw[::-1], repr(list(raw)).encode()}


def test_secrets_in_files_are_in_nothing_that_is_written(java, secured, tmp_path):
    folder = tmp_path / "written"
    folder.mkdir()
    reads = secured.options("reader")
    writes = {key: reads[key] for key in ("url", "caFile")}
    writes |= {"user": "writer", "passwordFile": str(tmp_path / "secrets" / "password")}
    unknown, _ = make_token("nobody-s")
    (tmp_path / "secrets" / "unknown").write_text(unknown)
    wrong = reads | {"tokenFile": str(tmp_path / "secrets" / "unknown")}
    with standalone_cluster(folder / "cluster") as master, (folder / "log").open("wb") as log:
        options = [json.dumps(each) for each in (reads, writes, wrong)]
        command = [sys.executable, str(PROGRAM), master, str(folder), *options]
        run = subprocess.run(
            command, env=environment(), cwd=folder, stdout=log, stderr=log, check=False
        )
    tail = (folder / "log").read_bytes()[-3000:].decode(errors="replace")
    assert run.returncode == 0, tail
    for topic in ("written", "flow", "copy", "other"):
        assert {message for _, message in read_by_next(secured.node, topic)} == {b"1", b"2"}
    token = (tmp_path / "secrets" / "reader").read_text().strip()
    secrets = {token: token.split("_", 2)[2][:43], unknown: unknown.split("_", 2)[2][:43]}
    needles = forms_of(PASSWORD).union(*map(forms_of, secrets.values()))
    contents = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    hits = [str(path) for path, data in contents.items() for each in needles if each in data]
    assert hits == []
    # It would have been found: what was looked through has the options and their names.
    for name, proof in {
        "log": reads["tokenFile"],
        "events/*/events*": "tokenFile",
        "page*": "tokenFile",
        "cluster/**/stderr": "DEBUG",
    }.items():
        assert any(proof.encode() in path.read_bytes() for path in folder.glob(name)), name
