"""The API reference says what the code says, and says something of every name."""

import re

import pytest

from tools import api_reference

CODE = re.compile(r"^```python\n.*?^```$", flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def pages():
    return api_reference.pages()


@pytest.mark.slow
@pytest.mark.parametrize("package", api_reference.PACKAGES)
def test_the_committed_page_is_current(package, pages):
    committed = (api_reference.FOLDER / f"{package}.md").read_text()
    assert committed == pages[package], "run: python -m tools.api_reference"


@pytest.mark.parametrize("package", api_reference.PACKAGES)
def test_every_name_has_a_sentence(package, pages):
    _, *entries = re.split(r"^##+ ", pages[package], flags=re.MULTILINE)
    assert entries
    for entry in entries:
        name, _, text = entry.partition("\n")
        assert CODE.sub("", text).strip(), name
