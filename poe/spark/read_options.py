"""What a read is told: the options of `spark.read` and `spark.readStream`, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Where to read, and what of it."""

    host: str = "127.0.0.1"
    port: int = 5555
    path: str | None = None
    archive: str | None = None
    topic: str | None = None
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    include_segment: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Turn what the user has written into options."""
        raise NotImplementedError
