"""What the documents say is so: links lead somewhere, code compiles, tables match the code."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from poe import errors
from poe.broker.requests.needs import AUDITED
from poe.protocol import messages
from tests import client_tables, error_table

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FORMATS = (ROOT / "docs" / "formats.md").read_text()

LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]*)(?:#([\w-]+))?\)")
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
MAKE_TARGET = re.compile(r"`make ([a-z-]+)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    """The anchors that a reader's program makes from the headings."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), flags=re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.strip().replace(" ", "-") for title in kept}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(document):
    for target, anchor in LINK.findall(document.read_text()):
        path = (document.parent / target) if target else document
        assert path.exists(), f"{target} does not exist"
        assert not anchor or anchor in anchors(path), f"{target} has no heading for #{anchor}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_python_block_compiles(document):
    for block in PYTHON_BLOCK.findall(document.read_text()):
        compile(block, name_of(document), "exec")


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_every_make_target_that_is_named_exists(document):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(MAKE_TARGET.findall(document.read_text())) <= set(targets)


def test_the_table_of_frames_is_the_codec_s():
    row = re.compile(r"^\| (\d{1,2}) \| (\w+(?:Request|Reply)) \|", flags=re.MULTILINE)
    classes = {(str(number), each.__name__) for number, each in messages.REQUESTS.items()} | {
        (str(each.MESSAGE_TYPE), each.__name__)
        for each in vars(messages).values()
        if isinstance(each, type) and hasattr(each, "MESSAGE_TYPE")
    }
    assert set(row.findall(FORMATS)) == classes


def test_the_operations_that_the_audit_log_tells_of_are_named():
    (row,) = re.findall(r"^\| `admitted` \| .* of (.*) \|$", FORMATS, flags=re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == AUDITED


def test_the_table_of_errors_is_complete():
    assert "\n".join(error_table.rows()) in FORMATS, "run: python -m tests.error_table"


@pytest.mark.parametrize("path", client_tables.DOCUMENTS, ids=lambda path: path.name)
def test_the_tables_of_clients_are_those_of_the_code(path):
    assert client_tables.renewed(path) == path.read_text(), "run: python -m tests.client_tables"


def test_no_two_errors_share_a_code():
    codes = [each.code for each in error_table.classes()]
    assert len(codes) == len(set(codes))
    assert errors.PoeError in error_table.classes()


@pytest.mark.slow
def test_the_changelog_can_be_built_from_its_fragments():
    towncrier = Path(sys.executable).with_name("towncrier")
    run = subprocess.run(
        [towncrier, "build", "--draft", "--version", "0.0.0"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
