"""What docs/gateway.md shows in a console is what comes out."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from poe.node import Node
from tests.gateway.http.front import Front

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="the examples are of curl"),
]

DOCUMENT = Path(__file__).parents[3] / "docs" / "gateway.md"
CONSOLE = re.compile(r"^```console\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
POINTER = re.compile(r"\b[0-9]{16}\b")


def examples():
    """Each command of the document, with the output that stands below it."""
    for block in CONSOLE.findall(DOCUMENT.read_text()):
        for part in block.split("$ ")[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def test_the_examples_do_what_they_show(tmp_path):
    with Node(dir=tmp_path, port=0) as node, Front(node) as front:
        for command, output in examples():
            here = command.replace("localhost:8000", f"127.0.0.1:{front.port}")
            run = subprocess.run(
                here, shell=True, check=False, capture_output=True, text=True, timeout=20
            )
            shown = POINTER.sub("POINTER", run.stdout)
            assert shown.rstrip("\n") == output.rstrip("\n"), command


def test_there_are_examples_to_run():
    assert len(list(examples())) >= 9
