"""The program in docs/spark.md does what its comments claim, and prints what is shown."""

import subprocess
import sys

import pytest

from tests import python_process
from tests.test_readme import PORT_SHOWN, blocks, free_port, program

DOCUMENT = python_process.ROOT / "docs" / "spark.md"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_python_blocks_do_what_their_comments_claim(java, tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", program(DOCUMENT).replace(PORT_SHOWN, free_port())],
        cwd=tmp_path,
        env=python_process.environment(),
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "".join(blocks(DOCUMENT, "text"))


def test_the_pipeline_is_shown_as_it_is():
    pipeline = python_process.ROOT / "examples" / "spark" / "failed_logins.toml"
    assert blocks(DOCUMENT, "toml") == [pipeline.read_text()]
