"""What tests of files begin with."""

import pytest

from poe.storage import Files
from tests.storage.faulty_files import FaultyFiles
from tests.storage.segments import files_at


@pytest.fixture
def files(tmp_path) -> Files:
    """A folder with nothing in it."""
    return files_at(tmp_path)


@pytest.fixture
def layer(files) -> FaultyFiles:
    """The same, and what is done there fails when it is told to."""
    return FaultyFiles(files)
