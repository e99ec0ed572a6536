"""Who has no replicated topics pays nothing for them."""

import subprocess
import sys

import pytest

from tests.ports import free_port
from tests.python_process import ROOT, environment

NODE = """
import sys, tempfile
import poe
with tempfile.TemporaryDirectory() as folder, poe.Node(dir=folder, port=0, {}) as node:
    node.put("t", b"x")
print(sorted(each for each in sys.modules if each.split(".")[0] == "nats" or "cluster.log" in each))
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "cluster='c', cluster_port={port}"])
def test_without_log_engine_nothing_of_the_log_is_loaded(options):
    program = NODE.format(options.format(port=free_port()))
    run = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment(),
    )
    assert run.stdout == "[]\n"
