"""What tests of several packages need."""

from collections.abc import Iterator

import pytest

from tests.small_disk import SmallDisk, small_disk


@pytest.fixture
def disk(tmp_path) -> Iterator[SmallDisk]:
    """A disk that is full when it is told to be."""
    with small_disk(tmp_path / "disk") as disk:
        yield disk
