"""Each defect that was found in the original has a test, and the document names it."""

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent
DOCUMENT = FOLDER.parents[2] / "docs" / "slab-log.md"
ROW = re.compile(r"^\| (Q\d\d) \| .* \| (`.*`) \|$", flags=re.MULTILINE)
TEST = re.compile(r"`(\w+\.py)::(\w+)`")


def test_every_defect_has_a_row_and_every_row_a_test_that_exists():
    rows = ROW.findall(DOCUMENT.read_text())
    assert [row for row, _ in rows] == [f"Q{number:02}" for number in range(1, 22)]
    for _, tests in rows:
        named = TEST.findall(tests)
        assert named
        for file, test in named:
            tree = ast.parse((FOLDER / file).read_text())
            assert test in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
