"""The API reference says what the code says, and says something of every name."""

import re

import pytest

from tools import api_reference

PAGES = api_reference.pages()
CODE = re.compile(r"^```python\n.*?^```$", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("package", api_reference.PACKAGES)
def test_the_committed_page_is_current(package):
    committed = (api_reference.FOLDER / f"{package}.md").read_text()
    assert committed == PAGES[package], "run: python -m tools.api_reference"


@pytest.mark.parametrize("package", api_reference.PACKAGES)
def test_every_name_has_a_sentence(package):
    _, *entries = re.split(r"^##+ ", PAGES[package], flags=re.MULTILINE)
    assert entries
    for entry in entries:
        name, _, text = entry.partition("\n")
        assert CODE.sub("", text).strip(), name
